#include "tools/train/replica_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/crc32c.h"
#include "tools/train/gather.h"

namespace tessera {
namespace {

/// "rank 2", or "ranks 0, 1 and 3".
std::string list_of(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  return fmt::format("ranks {} and {}", fmt::join(ranks.begin(), ranks.end() - 1, ", "),
                     ranks.back());
}

/// The eight bytes that travel.
std::int64_t packed(const Checksums& checksums) {
  return static_cast<std::int64_t>(std::uint64_t{checksums.gradients} << 32 | checksums.masters);
}

Checksums unpacked(std::int64_t number) {
  const auto bits = static_cast<std::uint64_t>(number);
  return {.gradients = static_cast<std::uint32_t>(bits >> 32),
          .masters = static_cast<std::uint32_t>(bits)};
}

/// Those of this rank, group by group. The strategy has its shards in this order.
std::vector<std::int64_t> own_checksums(const Strategy& strategy) {
  context().compute_stream().synchronize();  // the gradients have arrived
  std::vector<std::int64_t> all;
  auto shard = strategy.shards().begin();
  for (const GroupPlan& group : strategy.plan().groups) {
    Crc32c gradients, masters;
    if (!strategy.holds(group)) {
      all.push_back(0);  // as all ranks of another stage
      continue;
    }
    const auto add = [](Crc32c& crc, const Tensor& tensor) {
      if (!tensor.defined() || tensor.numel() == 0) return;
      const Tensor values = tensor.to_host();
      crc.add({static_cast<const std::byte*>(values.raw()), values.bytes()});
    };
    for (int i = 0; i < group.partition.parameter_count(); ++i, ++shard) {
      add(gradients, shard->gradient);
      add(masters, shard->data);
    }
    all.push_back(packed({.gradients = gradients.value(), .masters = masters.value()}));
  }
  return all;
}

}  // namespace

std::string describe_difference(const std::vector<int>& ranks,
                                const std::vector<Checksums>& checksums) {
  std::map<std::int64_t, std::vector<int>> holders;
  bool masters_differ = false;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    holders[packed(checksums[i])].push_back(ranks[i]);
    masters_differ |= checksums[i].masters != checksums.front().masters;
  }
  if (holders.size() == 1) return "";
  const char* const values = masters_differ ? "weights" : "reduced gradients";
  const auto most = std::max_element(
      holders.begin(), holders.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (2 * most->second.size() <= ranks.size()) {
    return fmt::format("the {} of {} should be equal, and differ", values, list_of(ranks));
  }
  std::vector<int> odd;
  for (const int rank : ranks) {
    const bool agrees =
        std::find(most->second.begin(), most->second.end(), rank) != most->second.end();
    if (!agrees) odd.push_back(rank);
  }
  return fmt::format("the {} of {} differ from those of {}", values, list_of(odd),
                     list_of(most->second));
}

void check_replicas(const Strategy& strategy, Communicator& world, std::int64_t step) {
  const std::vector<std::vector<std::int64_t>> all = gather_numbers(own_checksums(strategy), world);
  world.raise_if_aborted();
  const Plan& plan = strategy.plan();
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    std::map<int, std::pair<std::vector<int>, std::vector<Checksums>>> replicas;
    for (int rank = 0; rank < world.size(); ++rank) {
      auto& [ranks, checksums] =
          replicas[plan.mesh.group_along(rank, plan.groups[g].placement.replicate)];
      ranks.push_back(rank);
      checksums.push_back(unpacked(all[static_cast<std::size_t>(rank)][g]));
    }
    for (const auto& [number, of_group] : replicas) {
      const std::string difference = describe_difference(of_group.first, of_group.second);
      check(difference.empty(),
            "step {}: {}; a memory or a link is faulty. The run stops before the parameters are "
            "touched; continue elsewhere, from a checkpoint before the fault (train.resume)",
            step, difference);
    }
  }
}

}  // namespace tessera
