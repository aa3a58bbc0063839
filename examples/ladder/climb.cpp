#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "examples/ladder/ladder.h"
#include "runtime/check.h"

namespace tessera::ladder {

int climb(int argument_count, char** arguments, Ranks ranks, const MakeRung& make) try {
  const std::string program = std::filesystem::path(arguments[0]).filename();
  const std::string argument = argument_count < 2 ? "" : arguments[1];
  check(argument_count == 1 || (argument_count == 2 && (argument == "2" || argument == "4")),
        "usage: {} [2 | 4]", program);
  for (const int parts : {2, 4}) {
    if (!argument.empty() && argument != std::to_string(parts)) continue;
    const Outcome outcome = run(ranks == Ranks::one ? 1 : parts, parts, make);
    fmt::print("{:17} N = {}  loss {:.4f} -> {:.4f}  {:016x}  sent {:7}  held {:7}\n", program,
               parts, outcome.loss(0), outcome.loss(kSteps - 1), outcome.hash(),
               outcome.bytes_per_step, outcome.peak_bytes);
  }
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}: {}\n", arguments[0], error.what());
  return 1;
}

}  // namespace tessera::ladder
