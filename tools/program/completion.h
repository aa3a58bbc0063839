// Scripts by which bash, zsh and fish complete the words of a command line.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tools/program/options.h"

namespace tessera {

/// The script of `shell`, which is bash, zsh or fish. Behind a command that takes overrides it also
/// completes `keys`, each with "=".
std::string completion_script(std::string_view shell, const std::string& program,
                              std::span<const CommandWords> commands,
                              std::span<const std::string> keys);

}  // namespace tessera
