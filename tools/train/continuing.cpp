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
  std::string command = "tessera train";
  if (launch.kind == Launch::Kind::mpi) command = fmt::format("mpirun -np {} tessera train", ranks);
  if (launch.kind == Launch::Kind::tcp) command = "torchrun ... --no-python tessera train";
  if (!launch.command.empty()) command = launch.command;
  return fmt::format("{} {}{}", command, file, config.train.resume == "auto" ? "" : " --resume");
}

}  // namespace tessera
