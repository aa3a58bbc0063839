// Runs a fuzz target on files, without libFuzzer.
//
//   replay_TARGET --valid FILE... --any FILE...
//
// The target must accept the files after --valid. The files after --any must not break a promise.
// The program exits with status 1 if a valid file is refused, and aborts at a broken promise.
#include <fmt/format.h>

#include <span>
#include <string>

#include "runtime/file.h"
#include "tests/fuzz/fuzz.h"

int main(int count, char** arguments) {
  bool valid = false;
  int refused = 0;
  int files = 0;
  for (const std::string argument : std::span(arguments, count).subspan(1)) {
    if (argument == "--valid" || argument == "--any") {
      valid = argument == "--valid";
      continue;
    }
    ++files;
    const bool accepted = tessera::fuzz::accepts(tessera::read_text_file(argument));
    if (valid && !accepted) {
      fmt::print(stderr, "refused: {}\n", argument);
      ++refused;
    }
  }
  fmt::print("{} files, {} refused\n", files, refused);
  return refused == 0 && files > 0 ? 0 : 1;
}
