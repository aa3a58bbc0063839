#include "tools/train/resolve_ranks.h"

#include <algorithm>

#include "autograd/fp8.h"
#include "models/adapters.h"
#include "runtime/check.h"
#include "sharding/plan/placement.h"
#include "tools/config/parse.h"
#include "tools/train/parameter_groups.h"
#include "tools/train/preferences.h"

namespace tessera {
namespace {

/// The ranks that share the rows of a batch.
std::string describe_ranks(const ResolvedConfig& run, int ranks) {
  const int sharing = batch_ranks(run.sharding, ranks);
  if (sharing == ranks) return fmt::format("the number of ranks, {} (runtime.ranks)", ranks);
  return fmt::format("the {} ranks that share its rows ({} in all, runtime.ranks)", sharing, ranks);
}

/// The pieces that rows are cut into (autograd/context_axis.h); and a balance that sees whole rows.
void check_cut_rows(const ResolvedConfig& run) {
  const ShardingOptions& sharding = run.sharding;
  const int parts = std::max(sharding.context_parallel, sharding.grid);
  const std::int64_t length = run.config.data.sequence_length;
  check(parts <= 1 || length % (2 * parts) == 0,
        "data.sequence_length {} is no multiple of {}, twice sharding.{} {}: rows are cut into so "
        "many pieces",
        length, 2 * parts, sharding.grid > 0 ? "grid" : "context_parallel", parts);
  check(sharding.context_parallel == 1 || run.config.moe.balance != Balance::hf,
        "moe.balance hf counts whole rows, and sharding.context_parallel {} cuts them; choose bias "
        "or lagged",
        sharding.context_parallel);
}

/// Scales of blocks: all experts of a layer would need theirs, and a rank's channels have to be whole blocks of those
/// that one rank has.
void check_fp8_scales(const Config& config, const LanguageModel& model) {
  if (!config.runtime.compute_dtype.fp8 || has_fp8_history(config.runtime)) return;
  const std::int64_t ranks = config.sharding.tensor_parallel;
  for (const Parameter& weight : adaptable_weights(model)) {
    check(!weight.stacked(), "blocks is not for the experts of '{}'; set runtime.fp8_scales=tensor",
          weight.name());
    const Cut& cut = weight.cut();
    if (ranks == 1 || cut.divided == Divided::nothing) continue;
    const std::int64_t channels = weight.shape()[cut.dimension] / cut.groups;
    check(channels % (ranks * kFp8Block) == 0,
          "blocks have {} channels, and with sharding.tensor_parallel {} a rank has 1/{} of {} of "
          "'{}'; choose fewer ranks, or set runtime.fp8_scales=tensor",
          kFp8Block, ranks, ranks, channels, weight.name());
  }
}

}  // namespace

void describe_to_sharding(ResolvedConfig& run) {
  const TransformerShape shape = shape_of(run.model);
  const auto model = make_model(run.model);
  check_key(run.config, "adapter.targets", [&] { add_adapters(*model, run.config.adapter); });
  check_key(run.config, "optimizer.groups",
            [&] { run.sharding.matrix_dtype = matrix_dtypes(run.config.optimizer, *model); });
  check_key(run.config, "runtime.fp8_scales", [&] { check_fp8_scales(run.config, *model); });
  run.sharding.counters = shape.experts.layers * shape.experts.count;
  run.sharding.watches = run.config.train.watch > 0;
  const bool has_maxima = run.sharding.watches || run.config.optimizer.qk_clip > 0.0;
  run.sharding.maxima_per_unit = has_maxima ? 1 + shape.heads : 0;
  run.sharding.rounded_tensors =
      has_fp8_history(run.config.runtime) ? std::ssize(adaptable_weights(*model)) * kFp8Roles : 0;
  run.sharding.loss_numbers = 1 + numbers_behind_loss(run.config.train.objective);
  run.sharding.experts_per_token = static_cast<int>(shape.experts.per_token);
  run.sharding.stage_counters = run.config.moe.balance == Balance::hf ? shape.experts.count : 0;
  run.sharding.activations = tokens_per_step(run.config.data) * shape.width;
  auto& [elements, forward_passes] = run.sharding.keys_and_values;
  elements = tokens_per_step(run.config.data) * 2 * shape.kv_heads * shape.head_size;
  forward_passes.clear();
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const bool again = run.config.sharding.activation_checkpointing.recomputes(layer);
    forward_passes.push_back(again ? 2 : 1);
  }
  const bool is_gpt2 = std::holds_alternative<Gpt2Config>(run.model);
  const bool is_llama4 = std::holds_alternative<Llama4Config>(run.model);
  // Rows that have travelled to the experts are kept.
  const bool dispatches_again =
      run.sharding.expert_parallel == 1 || shape.experts.weighed == WeighedInput::gate_up;
  run.sharding.tensor_traffic = {
      .rows = tokens_per_step(run.config.data),
      .width = shape.width,
      .forward_passes = forward_passes,
      .attention_readers = is_llama4 ? 3 : 1,
      .experts = {.per_token = shape.experts.per_token,
                  .shared = shape.experts.shared_width > 0,
                  .dispatches_again = dispatches_again},
      .layer_norms = std::holds_alternative<Gemma3Config>(run.model) ? 4 : 2,
      .norm_vectors = is_gpt2 ? 2 : 1,
      .head_norms = shape.qk_norm ? 2 * shape.head_size : 0,
      .keys = {.pieces = shape.kv_heads, .uses = shape.heads / shape.kv_heads},
      .head_size = shape.head_size,
      .learns_positions = is_gpt2,
      .head_runs = compares_pairs(run.config.train.objective) ? 2 : 1,
      .dtype = run.config.runtime.compute_dtype,
      .fp8_rows = has_fp8_history(run.config.runtime)};
}

ResolvedConfig on_ranks(ResolvedConfig run, int ranks) {
  const std::int64_t elastic = run.config.train.elastic;
  if (elastic == 0) return run;
  const int sharing = batch_ranks(run.sharding, ranks);
  check_key(run.config, "train.elastic", [&] {
    check(elastic % sharing == 0, "{} is no multiple of {}", elastic, describe_ranks(run, ranks));
  });
  run.config.data.accumulation_steps = elastic / sharing;
  run.sharding.micro_batches = static_cast<int>(elastic / sharing);
  return run;
}

void check_sharding(const ResolvedConfig& run, int ranks) {
  const ResolvedConfig here = on_ranks(run, ranks);
  check_with_place(run.config, [&] {
    check_options(here.sharding, {.ranks = ranks});
    check_cut_rows(here);
  });
}

std::string uneven_batch(const ResolvedConfig& run, int ranks) {
  const DataConfig& data = run.config.data;
  const std::int64_t elastic = run.config.train.elastic;
  const auto problem_of = [&](std::string_view key, std::int64_t rows) -> std::string {
    if (elastic > 0) {
      if (rows % elastic == 0) return "";
      return fmt::format("{} {} is not a multiple of train.elastic {}", key, rows, elastic);
    }
    if (rows % (data.accumulation_steps * batch_ranks(run.sharding, ranks)) == 0) return "";
    return fmt::format("{} {} is not a multiple of data.accumulation_steps {} times {}", key, rows,
                       data.accumulation_steps, describe_ranks(run, ranks));
  };
  std::string problem = problem_of("data.batch_size", data.batch_size);
  for (const BatchStage& stage : run.config.train.batch_ramp) {
    if (problem.empty()) problem = problem_of("train.batch_ramp: the batch", stage.rows);
    if (problem.empty() && stage.rows > data.batch_size) {
      problem = fmt::format("train.batch_ramp: the batch {} is larger than data.batch_size {}",
                            stage.rows, data.batch_size);
    }
  }
  return problem;
}

void check_ranks(const ResolvedConfig& run, int ranks) {
  check_sharding(run, ranks);
  check_with_place(run.config, [&] {
    const std::string problem = uneven_batch(run, ranks);
    check(problem.empty(), "{}", problem);
  });
}

}  // namespace tessera
