// Prints the cost of GPT-2 124M per rank under every strategy, for docs/sharding_cost.md.
//
// No memory is allocated and no rank runs: footprint_of predicts the numbers that a run measures.
#include <fmt/format.h>

#include <algorithm>

#include "models/registry.h"
#include "sharding/plan/footprint.h"

using namespace tessera;

namespace {

using Named = std::pair<std::string, ShardingOptions>;

std::vector<Named> strategies_for(int ranks) {
  std::vector<Named> all;
  for (const auto kind : {StrategyKind::ddp, StrategyKind::zero1, StrategyKind::zero2,
                          StrategyKind::zero3, StrategyKind::fsdp, StrategyKind::hsdp}) {
    if (kind == StrategyKind::hsdp && ranks < 4) continue;  // two ranks have no two dimensions
    std::string name(name_of(kind));
    if (kind == StrategyKind::hsdp) name += fmt::format(" 2 x {}", ranks / 2);
    all.emplace_back(name, ShardingOptions{.strategy = kind});
    if (kind != StrategyKind::fsdp) continue;
    all.emplace_back("fsdp, flattened",
                     ShardingOptions{.strategy = kind, .flatten_parameters = true});
    all.emplace_back("fsdp, kept whole in between",
                     ShardingOptions{.strategy = kind, .reshard_group = 1});
  }
  return all;
}

std::int64_t memory_of(const Footprint& f) {
  return f.parameters + f.gradients + f.optimizer + f.communication;
}

/// The footprint of the rank with the most memory; bytes_sent is the maximum over all ranks.
Footprint largest_of(const Units& units, const ShardingOptions& options, int ranks) {
  Footprint largest;
  std::int64_t most_sent = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Footprint here = footprint_of(units, options, ranks, rank);
    if (memory_of(here) > memory_of(largest)) largest = here;
    most_sent = std::max(most_sent, here.bytes_sent);
  }
  largest.bytes_sent = most_sent;
  return largest;
}

void print_table(const Units& units, int ranks, DType compute_dtype) {
  fmt::print("{} ranks, computing in {}, one micro-batch; MB on the rank with the most\n\n", ranks,
             name_of(compute_dtype));
  fmt::print(
      "| strategy | parameters | gradients | optimizer | communication | sum | sent per step |\n"
      "|---|--:|--:|--:|--:|--:|--:|\n");
  for (auto& [name, options] : strategies_for(ranks)) {
    options.compute_dtype = compute_dtype;
    const Footprint f = largest_of(units, options, ranks);
    fmt::print("| {} |", name);
    for (const std::int64_t bytes :
         {f.parameters, f.gradients, f.optimizer, f.communication, memory_of(f), f.bytes_sent}) {
      fmt::print(" {:.1f} |", static_cast<double>(bytes) / 1e6);
    }
    fmt::print("\n");
  }
  fmt::print("\n");
}

void print_balance(const Units& units) {
  fmt::print("Elements on the rank with the most over the mean\n\n");
  fmt::print("| layout | N = 2 | N = 4 | N = 8 | N = 64 |\n|---|--:|--:|--:|--:|\n");
  for (const Layout layout : {Layout::tensors, Layout::rows, Layout::flat}) {
    fmt::print("| {} |", name_of(layout));
    for (const int ranks : {2, 4, 8, 64}) {
      const Partition partition(layout, ranks, make_buckets(units));
      std::int64_t largest = 0;
      std::int64_t sum = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        largest = std::max(largest, partition.owned_elements(rank));
        sum += partition.owned_elements(rank);
      }
      fmt::print(" {:.3f} |", static_cast<double>(largest * ranks) / static_cast<double>(sum));
    }
    fmt::print("\n");
  }
}

}  // namespace

int main() {
  const auto model = make_model(model_preset("gpt2"));
  print_table(model->units(), 2, DType::f32);
  print_table(model->units(), 8, DType::f32);
  print_table(model->units(), 8, DType::bf16);
  print_balance(model->units());
}
