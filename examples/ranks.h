// The argument of the example programs that run on a few ranks.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/check.h"

namespace tessera {

/// PROGRAM [RANKS]: the number of ranks, 4 without an argument. Raises Error unless it is 2 to 9.
inline int ranks_of(int argument_count, char** arguments) {
  const std::string program = std::filesystem::path(arguments[0]).filename();
  const std::string text = argument_count < 2 ? "4" : arguments[1];
  check(argument_count <= 2 && text.size() == 1 && text >= "2" && text <= "9",
        "usage: {} [RANKS], 2 to 9", program);
  return text.front() - '0';
}

}  // namespace tessera
