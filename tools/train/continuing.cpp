#include "tools/train/continuing.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace tessera {
namespace {

/// A word of a shell's command: in quotes if it has characters that shells read.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "/._-+=:,@%";
  const bool plain = std::all_of(word.begin(), word.end(), [&](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           kPlain.find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain && !word.empty()) return word;
  std::string text = "'";
  for (const char c : word) c == '\'' ? text += "'\\''" : text += c;
  return text + "'";
}

}  // namespace

std::string command_to_continue(const Config& config, int ranks, const Launch& launch) {
  const std::string file = quoted((config.train.dir / "config.yaml").string());
  std::string launcher;
  if (launch.kind == Launch::Kind::mpi) launcher = fmt::format("mpirun -np {} ", ranks);
  if (launch.kind == Launch::Kind::tcp) launcher = "torchrun ... --no-python ";
  return fmt::format("{}tessera train {}{}", launcher, file,
                     config.train.resume == "auto" ? "" : " --resume");
}

}  // namespace tessera
