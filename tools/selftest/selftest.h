// tessera selftest: does this machine train correctly? In a minute, by runs of a tiny model.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct SelftestOptions {
  /// Ranks of each run: a power of two from 2 on.
  int ranks = 2;
  /// As runtime.device.
  std::string device = "auto";
  /// The program `tessera`, which is started for each run.
  std::filesystem::path program;
  /// Keys of all runs but the one that the others are compared with: a planted fault, for tests.
  std::vector<std::string> fault = {};
};

/// Trains a tiny model by `tessera train`, in processes of its own in a folder that disappears again:
///
///   - on one rank, by every strategy, and by fsdp with tensor, context and pipeline ranks: the same weights, bit for bit; memory and bytes sent as
///     `tessera plan` predicts them
///   - by fsdp, killed after a checkpoint and continued: the weights of the first run
///   - by fsdp, continued from its checkpoint by zero3 with tensor ranks and on one rank: the same
///
/// `print` gets a line for each, which begins with "ok" or "WRONG". Returns the number of wrong ones.
int selftest(const SelftestOptions& options, const std::function<void(std::string_view)>& print);

}  // namespace tessera
