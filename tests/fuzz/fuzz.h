// The parts that the fuzz targets share.
//
// A target is one file with the function `accepts`. libFuzzer calls it with millions of damaged
// inputs (run.sh); replay.cpp calls it with the inputs that are kept, as an ordinary test.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string_view>

#include "runtime/context.h"
#include "runtime/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera::fuzz {

/// Whether the reader takes the input. Everything that the target promises of a bad input is checked
/// in it: it raises Error, with a message of one line.
bool accepts(std::string_view input);

/// Ends the program with a message, as a crash that libFuzzer keeps the input of.
inline void require(bool holds, std::string_view promise) {
  if (holds) return;
  fmt::print(stderr, "broken promise: {}\n", promise);
  std::abort();
}

/// A message must be one line for a terminal.
inline void require_one_line(std::string_view message) {
  require(!message.empty(), "a message has a text");
  for (const unsigned char byte : message) {
    require(byte >= 0x20 && byte != 0x7f, "a message is one line without control characters");
  }
}

/// Runs `read`; whether it raised no Error. Any other exception ends the program.
inline bool reads(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    require_one_line(error.what());
    return false;
  }
  return true;
}

/// A folder for the program's time. Readers of files get the input by it.
inline const test::TemporaryDirectory& folder() {
  static const test::TemporaryDirectory made;
  return made;
}

/// Writes a file in the folder. Unlike write_file_atomically it does not wait for the disk.
inline void write_file(const std::string& name, std::string_view text) {
  std::ofstream(folder() / name, std::ios::binary) << text;
}

/// The context of the calling thread, for readers that need one.
inline void enter_context() {
  static RankContext rank({.threads = 1});
  static const ContextGuard guard(rank);
}

}  // namespace tessera::fuzz
