#include "tools/plan/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kernels/linear_cross_entropy/op.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/out_of_memory.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/byte_unit.h"
#include "tools/plan/figures.h"
#include "tools/train/lengths.h"

namespace tessera {
namespace {

PlannedStrategy planned(const Config& config, const PlanOptions& options) {
  return plan_figures(config, options).figures;
}

std::int64_t rows_of(const Config& config, int ranks) {
  return config.data.batch_size / (config.data.accumulation_steps * batch_ranks(config, ranks));
}

Config with_rows(Config config, int ranks, std::int64_t rows) {
  config.data.batch_size = rows * config.data.accumulation_steps * batch_ranks(config, ranks);
  return config;
}

/// Doubles the rows until they no longer fit, then halves the interval.
void find_most_rows(MemoryAdvice& advice, const Config& config, const PlanOptions& options,
                    std::int64_t bytes) {
  constexpr std::int64_t kMost = std::int64_t{1} << 16;
  const auto fits = [&](std::int64_t rows) {
    const std::int64_t peak = planned(with_rows(config, options.ranks, rows), options).peak();
    if (peak > bytes) return false;
    advice.most_rows = rows;
    advice.peak_of_most_rows = peak;
    return true;
  };
  std::int64_t too_many = 1;
  while (too_many <= kMost && fits(too_many)) too_many *= 2;
  while (too_many - advice.most_rows > 1) {
    const std::int64_t middle = (too_many + advice.most_rows) / 2;
    if (!fits(middle)) too_many = middle;
  }
}

/// A head that computes the logits of a micro-batch at once writes the gradient of its weight once.
void find_head_chunk(MemoryAdvice& advice, Config config, const PlanOptions& options,
                     std::int64_t bytes) {
  std::int64_t& chunk = config.kernels.head_chunk;
  if (chunk == kAutomaticChunk) {
    chunk = options.on_gpus ? cuda::kCrossEntropyChunk : cpu::kCrossEntropyChunk;
  }
  const std::int64_t tokens = rows_of(config, options.ranks) * config.data.sequence_length;
  if (chunk >= tokens) return;
  chunk = tokens;
  const std::int64_t peak = planned(config, options).peak();
  if (peak > bytes) return;
  advice.head_chunk = tokens;
  advice.peak_of_head_chunk = peak;
}

/// The configuration with the fewest micro-batches that fits, if any does. `given`: those that need no key.
void add_fit(std::vector<Fit>& fits, Config config, std::vector<std::string> keys,
             std::int64_t given, const PlanOptions& options, std::int64_t bytes) {
  for (;; config.data.accumulation_steps *= 2) {
    const PlannedStrategy figures = planned(config, options);
    const std::int64_t rows = rows_of(config, options.ranks);
    if (figures.peak() > bytes) {
      if (rows < 2 || rows % 2 != 0) return;
      continue;
    }
    if (config.data.accumulation_steps != given) {
      keys.push_back(fmt::format("data.accumulation_steps={}", config.data.accumulation_steps));
    }
    fits.push_back({.keys = std::move(keys),
                    .peak = figures.peak(),
                    .step_seconds = figures.time ? figures.time->timeline.seconds : 0.0});
    return;
  }
}

/// With one strategy and offload: as it is, and with all blocks checkpointed.
void add_fits_of(std::vector<Fit>& fits, const Config& config, const std::vector<std::string>& keys,
                 std::int64_t given, const PlanOptions& options, std::int64_t bytes) {
  add_fit(fits, config, keys, given, options, bytes);
  if (config.sharding.activation_checkpointing == CheckpointingPolicy{.first = 0, .every = 1}) {
    return;
  }
  Config recomputed = config;
  recomputed.sharding.activation_checkpointing = {.first = 0, .every = 1};
  std::vector<std::string> more = keys;
  more.push_back("sharding.activation_checkpointing=full");
  add_fit(fits, recomputed, more, given, options, bytes);
}

/// The strategies that shard more than ddp, without the given one.
std::vector<std::string> other_strategies(const std::string& own, int ranks) {
  std::vector<std::string> names;
  for (const char* const name : {"zero1", "zero2", "zero3", "fsdp"}) {
    if (ranks > 1 && own != name) names.emplace_back(name);
  }
  return names;
}

/// With one offload: the given strategy, then the others.
void add_fits_with(std::vector<Fit>& fits, Offload offload, Config config, const std::string& own,
                   const PlanOptions& options, std::int64_t bytes) {
  std::vector<std::string> keys;
  if (offload != config.sharding.offload) {
    keys.push_back(fmt::format("sharding.offload={}", name_of(offload)));
    config.sharding.offload = offload;
  }
  const auto try_one = [&](const Config& one, const std::vector<std::string>& keys_of_one) {
    try {
      add_fits_of(fits, one, keys_of_one, config.data.accumulation_steps, options, bytes);
    } catch (const Error&) {
      // The strategy does not suit the model, the ranks or the offload.
    }
  };
  try_one(config, keys);
  for (const std::string& name : other_strategies(own, options.ranks)) {
    std::vector<std::string> all = {fmt::format("sharding.strategy={}", name)};
    all.insert(all.end(), keys.begin(), keys.end());
    try_one(variant_of(config, name), all);
  }
}

/// The fewest ranks of each cut that fit: tensor ranks, which share a node, stages of a pipeline, context ranks.
/// The ranks that compute other rows are fewer, so there are more micro-batches, of as many rows.
void add_fits_with_cuts(std::vector<Fit>& fits, const Config& config, const PlanOptions& options,
                        std::int64_t bytes) {
  struct Cut {
    const char* key;
    std::int64_t ShardingConfig::*size;
    int most;
  };
  const Cut cuts[] = {
      {"sharding.tensor_parallel", &ShardingConfig::tensor_parallel, options.ranks / options.nodes},
      {"sharding.pipeline_parallel", &ShardingConfig::pipeline_parallel, options.ranks},
      {"sharding.context_parallel", &ShardingConfig::context_parallel, options.ranks}};
  for (const Cut& cut : cuts) {
    if (config.sharding.*cut.size > 1) continue;
    const std::size_t before = fits.size();
    for (int size = 2; size <= cut.most && fits.size() == before; size *= 2) {
      Config one = config;
      one.sharding.*cut.size = size;
      one.data.accumulation_steps *= size;
      try {
        add_fits_of(fits, one, {fmt::format("{}={}", cut.key, size)},
                    config.data.accumulation_steps, options, bytes);
      } catch (const Error&) {
        // The cut does not suit the model or the ranks.
      }
    }
  }
}

/// The first settings that fit, as the end of an error's line.
std::string settings_that_fit(const Config& config, const PlanOptions& options,
                              std::int64_t bytes) {
  try {
    const MemoryAdvice advice = memory_advice(config, options, bytes);
    const ByteUnit unit(bytes);
    const std::string size = fmt::format("{} {}", unit.text(bytes), unit.name());
    if (advice.fits.empty())
      return fmt::format("no setting that was tried fits in {}: take more ranks", size);
    const Fit& fit = advice.fits.front();
    // The peak is the CPU's, and without the allocator's rounding.
    if (fit.keys.empty()) return "the run's tensors fit, but not with what else uses the memory";
    return fmt::format("in {} these settings fit: {}", size, fmt::join(fit.keys, " "));
  } catch (const Error&) {
    return OutOfMemory::kGeneralAdvice;  // there is no plan: the first error is the one to report
  }
}

}  // namespace

MemoryAdvice memory_advice(const Config& configured, const PlanOptions& options,
                           std::int64_t bytes) {
  const Config given = suited_to(configured, options);
  PlanOptions here = options;
  const PlanFigures figures = plan_figures(given, options);
  here.ranks = figures.options.ranks;
  Config config = with_batch_size(given, here.ranks);
  config.data.rows_per_rank = 0;
  MemoryAdvice advice{.peak = planned(config, here).peak()};
  find_most_rows(advice, config, here, bytes);
  find_head_chunk(advice, config, here, bytes);
  const Offload own = config.sharding.offload;
  // A plan on CPUs refuses offloads, too, but late.
  const bool offloads = here.on_gpus && (!here.machine || here.machine->host);
  for (const Offload offload : {Offload::none, Offload::optimizer, Offload::all}) {
    if (offload < own || (offload > own && !offloads)) continue;
    add_fits_with(advice.fits, offload, config, figures.figures.name, here, bytes);
  }
  if (advice.fits.empty()) add_fits_with_cuts(advice.fits, config, here, bytes);
  if (here.machine) {
    std::stable_sort(advice.fits.begin(), advice.fits.end(),
                     [](const Fit& a, const Fit& b) { return a.step_seconds < b.step_seconds; });
  }
  return advice;
}

std::int64_t nccl_part_of(std::int64_t memory, const Config& config, const PlanOptions& options) {
  const std::int64_t nccl = step_figures(suited_to(config, options), options, 0).nccl_at_most;
  const ByteUnit unit(memory);
  check(nccl < memory,
        "--memory {} {}: NCCL's buffers may take {} {} of a GPU; a plan for CPUs has "
        "runtime.device=cpu",
        unit.text(memory), unit.name(), unit.text(nccl), unit.name());
  return nccl;
}

std::string advice_text(const MemoryAdvice& advice, std::int64_t bytes, std::int64_t nccl) {
  const ByteUnit unit(std::max(bytes, advice.peak));
  const auto size = [&](std::int64_t count) {
    return fmt::format("{} {}", unit.text(count), unit.name());
  };
  const std::string less =
      nccl > 0 ? fmt::format(", next to {} for NCCL's buffers", size(nccl)) : "";
  std::string text =
      fmt::format("\nIn {} per rank{}:\n  at the peak   {}, which {}\n", size(bytes), less,
                  size(advice.peak), advice.peak <= bytes ? "fits" : "is too much");
  text += advice.most_rows == 0
              ? "  micro-batch   not even one row fits\n"
              : fmt::format("  micro-batch   at most {} row{}: {}\n", advice.most_rows,
                            advice.most_rows == 1 ? "" : "s", size(advice.peak_of_most_rows));
  if (advice.head_chunk > 0) {
    text += fmt::format("  head          kernels.head_chunk={} fits: {}\n", advice.head_chunk,
                        size(advice.peak_of_head_chunk));
  }
  if (advice.fits.empty()) {
    return text + "  cheapest      nothing that was tried fits: take more ranks\n";
  }
  const Fit& fit = advice.fits.front();
  const std::string keys =
      fit.keys.empty() ? "as it is" : fmt::format("{}", fmt::join(fit.keys, " "));
  text += fmt::format("  cheapest      {}: {}", keys, size(fit.peak));
  if (fit.step_seconds > 0.0) text += fmt::format(", {:.2f} ms a step", 1e3 * fit.step_seconds);
  return text + "\n";
}

void with_training_advice(const Config& config, const Communicator& world,
                          const std::function<void()>& body) {
  const bool on_gpus = !context().device().is_cpu();
  with_advice(
      [&](const OutOfMemory& error) {
        return settings_that_fit(config, {.ranks = world.size(), .on_gpus = on_gpus},
                                 error.live_bytes);
      },
      body);
}

std::int64_t parse_memory(const std::string& text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  double factor = 0.0;
  if (unit == "GiB") factor = 0x1p30;
  if (unit == "MiB") factor = 0x1p20;
  if (unit == "GB") factor = 1e9;
  if (unit == "MB") factor = 1e6;
  check(error == std::errc() && factor > 0.0 && number > 0.0 && number * factor < 0x1p60,
        "--memory {}: expected a size such as 80GiB, 512MiB or 16GB", text);
  return static_cast<std::int64_t>(number * factor);
}

}  // namespace tessera
