#include "tools/plan/search.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/check.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/byte_unit.h"
#include "tools/plan/figures.h"

namespace tessera {

std::vector<Candidate> search_strategies(const Config& config, const PlanOptions& options,
                                         std::optional<std::int64_t> bytes) {
  check(options.machine.has_value(), "--search needs --machine: it sorts by the time of a step");
  std::vector<Candidate> found;
  std::string problem = "no strategy suits the ranks";
  const auto consider = [&](const std::string& strategy, int shard_size) {
    try {
      Config one = variant_of(config, strategy);
      if (shard_size > 0) one.sharding.shard_size = shard_size;
      const PlannedStrategy figures = plan_figures(one, options).figures;
      if (!figures.time) return;
      if (bytes && figures.peak() > *bytes) {
        problem = "no strategy fits the memory; --memory without --search names a change that does";
        return;
      }
      const Timeline& timeline = figures.time->timeline;
      found.push_back({.strategy = strategy,
                       .shard_size = shard_size,
                       .peak = figures.peak(),
                       .step_seconds = timeline.seconds,
                       .exposed_seconds = timeline.exposed,
                       .limit = timeline.limit()});
    } catch (const Error& error) {
      if (found.empty()) problem = error.what();
    }
  };
  const int ranks = options.ranks > 0 ? options.ranks : static_cast<int>(config.runtime.ranks);
  for (const std::string& name : strategy_variants()) {
    if (name != "hsdp") consider(name, 0);
  }
  for (int size = 2; size < ranks; ++size) {
    if (ranks % size == 0) consider("hsdp", size);
  }
  check(!found.empty(), "{}", problem);
  std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return a.step_seconds < b.step_seconds;
  });
  return found;
}

std::string search_table(const std::vector<Candidate>& candidates) {
  std::int64_t most = 0;
  for (const Candidate& one : candidates) most = std::max(most, one.peak);
  const ByteUnit unit(most);
  std::string text = fmt::format("{:<20} {:>11} {:>11} {:>11}  {}\n", "", "step ms", "exposed ms",
                                 fmt::format("peak {}", unit.name()), "limit");
  for (const Candidate& one : candidates) {
    const std::string name = one.shard_size > 0
                                 ? fmt::format("{} shard_size={}", one.strategy, one.shard_size)
                                 : one.strategy;
    text += fmt::format("{:<20} {:>11.2f} {:>11.2f} {:>11}  {}\n", name, 1e3 * one.step_seconds,
                        1e3 * one.exposed_seconds, unit.text(one.peak), one.limit);
  }
  return text;
}

}  // namespace tessera
