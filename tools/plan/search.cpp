#include "tools/plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

#include "runtime/check.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/byte_unit.h"
#include "tools/plan/cuts.h"
#include "tools/plan/figures.h"
#include "tools/train/lengths.h"
#include "tools/train/resolve_ranks.h"

namespace tessera {
namespace {

/// Cuts, and a lower bound of the time of a step with them.
struct BoundedCuts {
  Cuts cuts;
  double least_seconds = 0.0;
};

std::vector<int> divisors(std::int64_t number) {
  std::vector<int> found;
  for (int divisor = 1; divisor <= number; ++divisor) {
    if (number % divisor == 0) found.push_back(divisor);
  }
  return found;
}

/// The schedules for so many stages, and the chunks of each.
std::vector<Cuts> schedules_of(int stages) {
  if (stages == 1) return {{}};
  return {{.schedule = PipelineSchedule::zero_bubble},
          {.schedule = PipelineSchedule::interleaved, .chunks = 4},
          {.schedule = PipelineSchedule::interleaved, .chunks = 2},
          {.schedule = PipelineSchedule::one_forward_one_backward},
          {.schedule = PipelineSchedule::gpipe}};
}

Config without_cuts(Config config) {
  config.data.rows_per_rank = 0;
  Cuts{}.apply(config.sharding);
  return config;
}

/// A kind of cuts is left after so many meshes in a row, by their least time, that are no faster.
constexpr int kPatience = 6;

class Search {
 public:
  Search(const Config& config, const PlanOptions& options, std::optional<std::int64_t> bytes)
      : options_(options),
        bytes_(bytes),
        ranks_(options.ranks > 0 ? options.ranks : static_cast<int>(config.runtime.ranks)),
        config_(without_cuts(with_batch_size(config, ranks_))),
        rows_(std::max<std::int64_t>(
            1, config_.data.batch_size / (config_.data.accumulation_steps * ranks_))),
        run_(resolve(config_)),
        model_(make_model(run_)),
        least_(model_->units(), model_->shape(), rows_, config_.data.sequence_length,
               config_.sharding.pipeline_stages) {}

  std::vector<Candidate> run() {
    for (const BoundedCuts& one : options_in_turn()) {
      const unsigned kind = one.cuts.kind();
      if (slower_[kind] == kPatience || one.least_seconds >= fastest_of(kind) ||
          fits_with_fewer(one.cuts)) {
        continue;
      }
      const double before = fastest_of(kind);
      const std::size_t found = found_.size();
      consider_cuts(one.cuts);
      if (fastest_of(kind) < before) {
        slower_[kind] = 0;
      } else if (found_.size() > found) {
        ++slower_[kind];
      }
    }
    check(!found_.empty(), "{}", problem_);
    std::stable_sort(found_.begin(), found_.end(), [](const Candidate& a, const Candidate& b) {
      return a.step_seconds < b.step_seconds;
    });
    return std::move(found_);
  }

 private:
  /// The cuts that suit the batch, the fewest context ranks first, then by their least time. No cut is the first.
  std::vector<BoundedCuts> options_in_turn() {
    std::vector<BoundedCuts> all;
    const auto add = [&](const Cuts& cuts) {
      if (micro_batches_of(cuts) < cuts.pipeline) return;
      try {
        all.push_back({cuts, least_of(cuts, false)});
      } catch (const Error&) {
        // There are fewer parts of the model than stages.
      }
    };
    for (const int tensor : divisors(ranks_ / options_.nodes)) {
      for (const int pipeline : divisors(ranks_ / tensor)) {
        const int data_ranks = ranks_ / (tensor * pipeline);
        for (const int expert :
             divisors(std::max<std::int64_t>(1, model_->shape().experts.count))) {
          for (const int context : divisors(data_ranks)) {
            if (data_ranks % (context * expert) != 0) continue;
            for (Cuts cuts : schedules_of(pipeline)) {
              cuts.tensor = tensor, cuts.context = context;
              cuts.pipeline = pipeline, cuts.expert = expert;
              add(cuts);
            }
          }
        }
      }
    }
    std::stable_sort(all.begin(), all.end(), [](const BoundedCuts& a, const BoundedCuts& b) {
      return std::tuple(a.cuts.context, a.cuts.any(), a.least_seconds) <
             std::tuple(b.cuts.context, b.cuts.any(), b.least_seconds);
    });
    if (all.empty() || all.front().cuts.any()) note_uneven_batch();
    return all;
  }

  /// 0: the batch does not divide.
  std::int64_t micro_batches_of(const Cuts& cuts) const {
    const std::int64_t at_once = rows_ * (ranks_ / cuts.ranks_of_a_copy());
    return config_.data.batch_size % at_once == 0 ? config_.data.batch_size / at_once : 0;
  }

  void note_uneven_batch() {
    const std::string uneven = uneven_batch(on_ranks(run_, ranks_), ranks_);
    if (!uneven.empty()) problem_ = uneven, has_reason_ = true;
  }

  /// Cores that other ranks leave idle may compute faster than the rates, so on CPUs there is no bound.
  double least_of(const Cuts& cuts, bool recomputes) const {
    const MachineRates& machine = *options_.machine;
    const int on_node = ranks_ / options_.nodes;
    const DType dtype = run_.sharding.compute_dtype;
    const auto at_rates = [&](const ComputeRates& rates) {
      return least_.seconds(cuts, micro_batches_of(cuts), recomputes, rates);
    };
    double seconds = at_rates(machine.compute_of(on_node, dtype));
    if (run_.config.runtime.compute_dtype.fp8) {
      seconds = std::min(seconds, at_rates(machine.compute_in_8_bits(on_node, dtype)));
    }
    return machine.cores > 0 ? 0.0 : seconds;
  }

  /// The fastest candidate so far with no other cuts than these. One that needs more cuts and is slower is not worth
  /// them.
  double fastest_of(unsigned kind) const {
    double fastest = std::numeric_limits<double>::infinity();
    for (const auto& [other, seconds] : fastest_) {
      if ((other & kind) == other) fastest = std::min(fastest, seconds);
    }
    return fastest;
  }

  /// More context ranks send more, so the fewest that fit without recomputation are enough.
  bool fits_with_fewer(const Cuts& cuts) const {
    return std::any_of(fitting_.begin(), fitting_.end(), [&](Cuts fewer) {
      fewer.context = cuts.context;
      return fewer == cuts;
    });
  }

  void consider_cuts(const Cuts& cuts) {
    Config one = config_;
    one.data.accumulation_steps = micro_batches_of(cuts);
    cuts.apply(one.sharding);
    std::vector<std::string> keys = cuts.keys();
    if (cuts.ranks_of_a_copy() > 1) {
      keys.push_back(fmt::format("data.accumulation_steps={}", one.data.accumulation_steps));
    }
    constexpr CheckpointingPolicy kFull = {.first = 0, .every = 1};
    if (consider_strategies(one, cuts, keys)) {
      fitting_.push_back(cuts);
      return;
    }
    if (bytes_ && one.sharding.activation_checkpointing != kFull &&
        least_of(cuts, true) < fastest_of(cuts.kind())) {
      one.sharding.activation_checkpointing = kFull;
      keys.emplace_back("sharding.activation_checkpointing=full");
      consider_strategies(one, cuts, keys);
    }
  }

  /// Without cuts every strategy and mesh. With cuts zero1, which gathers parameters once a step, and only
  /// where it does not fit fsdp and, across nodes, hsdp on the fewest ranks that fit.
  bool consider_strategies(const Config& config, const Cuts& cuts,
                           const std::vector<std::string>& keys) {
    const int data_ranks = ranks_ / (cuts.tensor * cuts.pipeline);
    const auto tries = [&](const std::string& name, int shard_size) {
      Config one = config;
      one.sharding.shard_size = shard_size;
      return consider_reductions(
          one, {.strategy = name, .shard_size = shard_size, .cuts = cuts, .keys = keys});
    };
    bool fits = false;
    if (!cuts.any()) {
      for (const std::string& name : strategy_variants()) {
        if (name != "hsdp") fits = tries(name, 0) || fits;
      }
      for (const int size : divisors(data_ranks)) {
        if (size > 1 && size < data_ranks) fits = tries("hsdp", size) || fits;
      }
      return fits;
    }
    if (tries(data_ranks == 1 ? "ddp" : "zero1", 0)) return true;
    if (data_ranks == 1) return false;
    fits = tries("fsdp", 0);
    const int on_node = ranks_ / options_.nodes / cuts.tensor;
    for (const int size : divisors(data_ranks)) {
      if (options_.nodes == 1 || size < std::max(2, on_node) || size == data_ranks) continue;
      if (tries("hsdp", size)) return true;
    }
    return fits;
  }

  /// Gradients that are reduced once send less than those of every micro-batch. They are whole, as those of ddp
  /// and zero1 are in any case. Returns whether the candidate suits and fits.
  bool consider_reductions(const Config& config, const Candidate& candidate) {
    if (config.data.accumulation_steps > 1 && config.train.elastic == 0 &&
        config.sharding.reduce == ReduceAfter::every_micro_batch) {
      Config once = config;
      once.sharding.reduce = ReduceAfter::last_micro_batch;
      Candidate one = candidate;
      one.keys.emplace_back("sharding.reduce=last_micro_batch");
      const Outcome outcome = consider(once, std::move(one));
      const bool is_whole = candidate.strategy == "ddp" || candidate.strategy == "zero1";
      if (outcome == Outcome::fits) return true;
      if (outcome == Outcome::too_large && is_whole) return false;
    }
    return consider(config, candidate) == Outcome::fits;
  }

  enum class Outcome { fits, too_large, unsuitable };

  Outcome consider(const Config& config, Candidate candidate) {
    try {
      const PlannedStrategy figures =
          step_figures(variant_of(config, candidate.strategy), options_, bytes_);
      if (bytes_ && (!figures.step || figures.peak() > *bytes_)) {
        has_reason_ = true;
        problem_ =
            "no strategy fits the memory; --memory without --search names a change that does";
        return Outcome::too_large;
      }
      if (!figures.time) return Outcome::unsuitable;
      const Timeline& timeline = figures.time->timeline;
      candidate.peak = figures.peak();
      candidate.step_seconds = timeline.seconds;
      candidate.exposed_seconds = timeline.exposed;
      candidate.bubble = timeline.bubble / timeline.seconds;
      candidate.limit = timeline.limit();
      const auto [best, is_first] = fastest_.emplace(candidate.cuts.kind(), timeline.seconds);
      if (!is_first) best->second = std::min(best->second, timeline.seconds);
      found_.push_back(std::move(candidate));
      return Outcome::fits;
    } catch (const Error& error) {
      if (!has_reason_) problem_ = error.what();
      return Outcome::unsuitable;
    }
  }

  const PlanOptions options_;
  const std::optional<std::int64_t> bytes_;
  const int ranks_;
  const Config config_;
  /// The rows of a rank in a micro-batch.
  const std::int64_t rows_;
  const ResolvedConfig run_;
  const std::unique_ptr<LanguageModel> model_;
  const LeastTime least_;
  /// Seconds by Cuts::kind().
  std::map<unsigned, double> fastest_;
  /// By Cuts::kind(), the meshes in a row that were no faster than one before.
  std::map<unsigned, int> slower_;
  std::vector<Cuts> fitting_;
  std::vector<Candidate> found_;
  /// Whether `problem_` says more than that one candidate does not suit.
  bool has_reason_ = false;
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

std::string search_json(const std::vector<Candidate>& candidates) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Candidate& one : candidates) {
    all.push_back({{"strategy", one.strategy},
                   {"shard_size", one.shard_size},
                   {"tensor", one.cuts.tensor},
                   {"context", one.cuts.context},
                   {"pipeline", one.cuts.pipeline},
                   {"expert", one.cuts.expert},
                   {"keys", one.keys},
                   {"peak", one.peak},
                   {"step_seconds", one.step_seconds},
                   {"exposed_seconds", one.exposed_seconds},
                   {"bubble", one.bubble},
                   {"limit", one.limit}});
  }
  return nlohmann::ordered_json{{"program", "search"}, {"candidates", all}}.dump();
}

}  // namespace tessera
