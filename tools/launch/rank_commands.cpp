#include "tools/launch/rank_commands.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "runtime/descriptor.h"
#include "sharding/comm/tcp/socket.h"
#include "tools/launch/process_tree.h"

namespace tessera {

std::vector<std::vector<std::string>> rank_commands(const std::vector<std::string>& command,
                                                    int ranks) {
  const int port = tcp::port_of(Descriptor(tcp::listen_on(0, "MASTER_PORT")).number());
  std::vector<std::vector<std::string>> commands;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string>& words = commands.emplace_back();
    words = {"/usr/bin/env",
             fmt::format("RANK={}", rank),
             fmt::format("LOCAL_RANK={}", rank),
             fmt::format("WORLD_SIZE={}", ranks),
             "MASTER_ADDR=localhost",
             fmt::format("MASTER_PORT={}", port)};
    words.insert(words.end(), command.begin(), command.end());
  }
  return commands;
}

int run_as_ranks(int count, char** arguments, int ranks) {
  std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  command.insert(command.end(), arguments + 1, arguments + count);
  ProcessTree tree(rank_commands(command, ranks));
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    if (const auto status = tree.poll()) return *status;
  }
}

}  // namespace tessera
