#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "examples/ladder/ladder.h"
#include "runtime/check.h"

namespace tessera::ladder {

int climb(int argument_count, char** arguments, Ranks ranks, const MakeRung& make) try {
  const std::string program = std::filesystem::path(arguments[0]).filename();
  const std::string argument = argument_count < 2 ? "" : arguments[1];
  const bool state = argument_count == 3 && std::string(arguments[2]) == "--state";
  check(argument_count == 1 ||
            ((argument_count == 2 || state) && (argument == "2" || argument == "4")),
        "usage: {} [2 | 4 [--state]]", program);
  const int digits = state ? 9 : 4;
  for (const int parts : {2, 4}) {
    if (!argument.empty() && argument != std::to_string(parts)) continue;
    const Outcome outcome = run(ranks == Ranks::one ? 1 : parts, parts, make);
    fmt::print("{:17} N = {}  loss {:.{}f} -> {:.{}f}  {:016x}  sent {:7}  held {:7}\n", program,
               parts, outcome.loss(0), digits, outcome.loss(kSteps - 1), digits, outcome.hash(),
               outcome.bytes_per_step, state ? outcome.state_bytes : outcome.peak_bytes);
  }
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}: {}\n", arguments[0], error.what());
  return 1;
}

}  // namespace tessera::ladder
