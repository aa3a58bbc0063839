#include "tools/plan/search.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/transformer_shape.h"
#include "runtime/check.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/byte_unit.h"
#include "tools/plan/figures.h"
#include "tools/train/lengths.h"

namespace tessera {
namespace {

/// The sizes of the cuts next to a strategy.
struct Cuts {
  int tensor = 1, context = 1, pipeline = 1, expert = 1;
  /// Stages of each rank: several are for the schedule interleaved.
  int chunks = 1;

  int ranks_of_a_copy() const { return tensor * context * pipeline; }
  bool any() const { return ranks_of_a_copy() * expert > 1; }
};

std::vector<int> divisors(std::int64_t number) {
  std::vector<int> found;
  for (int divisor = 1; divisor <= number; ++divisor) {
    if (number % divisor == 0) found.push_back(divisor);
  }
  return found;
}

std::vector<std::string> keys_of(const Cuts& cuts, std::int64_t micro_batches) {
  std::vector<std::string> keys;
  const auto add = [&](const char* name, int size) {
    if (size > 1) keys.push_back(fmt::format("sharding.{}={}", name, size));
  };
  add("tensor_parallel", cuts.tensor);
  add("context_parallel", cuts.context);
  add("pipeline_parallel", cuts.pipeline);
  if (cuts.chunks > 1) keys.emplace_back("sharding.pipeline_schedule=interleaved");
  add("pipeline_chunks", cuts.chunks);
  add("expert_parallel", cuts.expert);
  if (cuts.ranks_of_a_copy() > 1) {
    keys.push_back(fmt::format("data.accumulation_steps={}", micro_batches));
  }
  return keys;
}

class Search {
 public:
  Search(const Config& config, const PlanOptions& options, std::optional<std::int64_t> bytes)
      : options_(options),
        bytes_(bytes),
        ranks_(options.ranks > 0 ? options.ranks : static_cast<int>(config.runtime.ranks)),
        config_(with_batch_size(config, ranks_)),
        shape_(shape_of(resolve(config_).model)) {
    config_.data.rows_per_rank = 0;
    set_cuts(config_, {});
    const std::int64_t at_once = config_.data.accumulation_steps * batch_ranks(config_, ranks_);
    rows_ = std::max<std::int64_t>(1, config_.data.batch_size / at_once);
  }

  std::vector<Candidate> run() {
    for (const std::string& name : strategy_variants()) {
      if (name != "hsdp") consider(config_, {.strategy = name});
    }
    for (const int size : divisors(ranks_)) {
      if (size == 1 || size == ranks_) continue;
      Config one = config_;
      one.sharding.shard_size = size;
      consider(one, {.strategy = "hsdp", .shard_size = size});
    }
    const std::int64_t at_once = rows_ * config_.data.accumulation_steps * ranks_;
    suits_without_ = !found_.empty() && config_.data.batch_size % at_once == 0;
    for (const int tensor : divisors(ranks_ / options_.nodes)) {
      for (const int pipeline : divisors(ranks_ / tensor)) {
        for (const int expert : divisors(std::max<std::int64_t>(1, shape_.experts.count))) {
          for (const int chunks : {1, 2}) {
            if (chunks > 1 && pipeline == 1) continue;
            consider_contexts(
                {.tensor = tensor, .pipeline = pipeline, .expert = expert, .chunks = chunks});
          }
        }
      }
    }
    check(!found_.empty(), "{}", problem_);
    std::stable_sort(found_.begin(), found_.end(), [](const Candidate& a, const Candidate& b) {
      return a.step_seconds < b.step_seconds;
    });
    return std::move(found_);
  }

 private:
  static void set_cuts(Config& config, const Cuts& cuts) {
    ShardingConfig& sharding = config.sharding;
    sharding.tensor_parallel = cuts.tensor;
    sharding.context_parallel = cuts.context;
    sharding.pipeline_parallel = cuts.pipeline;
    sharding.expert_parallel = cuts.expert;
    sharding.pipeline_chunks = cuts.chunks;
    sharding.pipeline_schedule = cuts.chunks > 1 ? PipelineSchedule::interleaved
                                                 : PipelineSchedule::one_forward_one_backward;
    if (cuts.pipeline == 1) sharding.pipeline_stages.clear();
  }

  /// More context ranks send more, so the fewest that suit and fit are enough. Without any cut that is for run()
  /// to say: `suits_without_` is whether a strategy did.
  void consider_contexts(Cuts cuts) {
    for (const int context : divisors(ranks_ / (cuts.tensor * cuts.pipeline))) {
      cuts.context = context;
      if (cuts.any() ? consider_cuts(cuts) : suits_without_) return;
    }
  }

  bool consider_cuts(const Cuts& cuts) {
    const int data_ranks = ranks_ / (cuts.tensor * cuts.pipeline);
    const int batch_ranks = data_ranks / cuts.context;
    const std::int64_t batch = config_.data.batch_size;
    if (data_ranks % (cuts.context * cuts.expert) != 0 || batch % (rows_ * batch_ranks) != 0) {
      return false;
    }
    Config one = config_;
    one.data.accumulation_steps = batch / (rows_ * batch_ranks);
    if (one.data.accumulation_steps < cuts.pipeline) return false;
    set_cuts(one, cuts);
    const auto keys = keys_of(cuts, one.data.accumulation_steps);
    bool fits = false;
    for (const char* const strategy : {"ddp", "zero1", "fsdp"}) {
      if ((data_ranks == 1) != (std::string_view(strategy) == "ddp")) continue;
      fits = consider(one, {.strategy = strategy, .keys = keys}) || fits;
    }
    return fits;
  }

  /// Returns whether the candidate suits and fits.
  bool consider(const Config& config, Candidate candidate) {
    try {
      const PlannedStrategy figures =
          plan_figures(variant_of(config, candidate.strategy), options_).figures;
      if (!figures.time) return false;
      if (bytes_ && figures.peak() > *bytes_) {
        too_large_ = true;
        problem_ =
            "no strategy fits the memory; --memory without --search names a change that does";
        return false;
      }
      const Timeline& timeline = figures.time->timeline;
      candidate.peak = figures.peak();
      candidate.step_seconds = timeline.seconds;
      candidate.exposed_seconds = timeline.exposed;
      candidate.bubble = timeline.bubble / timeline.seconds;
      candidate.limit = timeline.limit();
      found_.push_back(std::move(candidate));
      return true;
    } catch (const Error& error) {
      if (found_.empty() && !too_large_) problem_ = error.what();
      return false;
    }
  }

  const PlanOptions options_;
  const std::optional<std::int64_t> bytes_;
  const int ranks_;
  Config config_;
  const TransformerShape shape_;
  /// The rows of a rank in a micro-batch.
  std::int64_t rows_ = 1;
  bool suits_without_ = false;
  std::vector<Candidate> found_;
  /// Whether a candidate suits the ranks, but not the memory.
  bool too_large_ = false;
  std::string problem_ = "no strategy suits the ranks";
};

std::string name_of(const Candidate& one) {
  return one.shard_size > 0 ? fmt::format("{} shard_size={}", one.strategy, one.shard_size)
                            : one.strategy;
}

}  // namespace

std::vector<Candidate> search_strategies(const Config& config, const PlanOptions& options,
                                         std::optional<std::int64_t> bytes) {
  check(options.machine.has_value(), "--search needs --machine: it sorts by the time of a step");
  return Search(config, options, bytes).run();
}

std::string search_table(const std::vector<Candidate>& candidates) {
  std::int64_t most = 0;
  for (const Candidate& one : candidates) most = std::max(most, one.peak);
  const ByteUnit unit(most);
  constexpr const char* kRow = "{:<20} {:>11} {:>11} {:>7} {:>11}  {}\n";
  std::string text = fmt::format(kRow, "", "step ms", "exposed ms", "bubble",
                                 fmt::format("peak {}", unit.name()), "limit");
  for (const Candidate& one : candidates) {
    text += fmt::format(kRow, name_of(one), fmt::format("{:.2f}", 1e3 * one.step_seconds),
                        fmt::format("{:.2f}", 1e3 * one.exposed_seconds),
                        fmt::format("{:.0f}%", 100.0 * one.bubble), unit.text(one.peak), one.limit);
    if (!one.keys.empty()) text += fmt::format("  {}\n", fmt::join(one.keys, " "));
  }
  return text;
}

}  // namespace tessera
