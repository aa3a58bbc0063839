#include "tools/plan/figures.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/dry_gpu.h"
#include "runtime/integer.h"
#include "runtime/threads.h"
#include "sharding/plan/nccl_memory.h"
#include "tools/config/sharding_options.h"
#include "tools/train/lengths.h"
#include "tools/train/optimizer.h"
#include "tools/train/resolve_ranks.h"

namespace tessera {
namespace {

int ranks_of(const Config& config, const PlanOptions& options) {
  return options.ranks > 0 ? options.ranks : std::max(1, static_cast<int>(config.runtime.ranks));
}

int ranks_per_node_of(const PlanOptions& options) {
  return options.nodes > 1 ? options.ranks / options.nodes : 0;
}

Machine machine_of(const PlanOptions& options) {
  return {.ranks = options.ranks,
          .ranks_per_node = ranks_per_node_of(options),
          .device = options.on_gpus ? kDryGpu : Device{}};
}

bool offloads(const Plan& plan) {
  return std::any_of(plan.groups.begin(), plan.groups.end(), [](const GroupPlan& group) {
    return group.placement.offload != Offload::none;
  });
}

int threads_of(const ResolvedConfig& run, const PlanOptions& options) {
  const int threads = static_cast<int>(run.config.runtime.threads);
  const int ranks_on_node = options.ranks / options.nodes;
  return threads > 0 ? threads : std::max(1, available_threads() / ranks_on_node);
}

StepMemory step_of(const ResolvedConfig& run, const Plan& plan, int rank,
                   const PlanOptions& options, AssumedLoad::Kind load) {
  // The peak is that of a shorter run; the time is not, nor the peak of a pipeline, which keeps activations
  // of several micro-batches.
  const bool whole = options.machine.has_value() || plan.pipeline.has_several();
  const ResolvedConfig shorter =
      whole ? shortened(run, options.ranks, run.config.data.accumulation_steps)
            : shortened(run, options.ranks);
  return dry_run(shorter,
                 {.rank = rank,
                  .ranks = options.ranks,
                  .ranks_per_node = ranks_per_node_of(options),
                  .device = offloads(plan) ? kDryGpu : Device{},
                  .threads = threads_of(run, options)},
                 load);
}

/// Whether ranks send messages to one another, besides collectives.
bool sends_messages(const ResolvedConfig& run, const Plan& plan) {
  const ShardingConfig& sharding = run.config.sharding;
  return sharding.deterministic || plan.elastic || run.sharding.reduce_dtype != DType::f32 ||
         run.sharding.expert_parallel > 1 || has_cuts(plan.mesh) ||
         run.config.optimizer.name == OptimizerKind::muon;
}

/// Buffers of NCCL's collectives on a rank, at most.
int windows_of(const ResolvedConfig& run, const Plan& plan) {
  if (!run.config.sharding.nccl_windows) return 0;
  int count = 0;
  for (const GroupPlan& group : plan.groups) count += group.collective_buffers();
  return count;
}

std::int64_t nccl_at_most(const ResolvedConfig& run, const Plan& plan, const PlanOptions& options) {
  const CommunicatorKind kind = run.config.sharding.communicator;
  const auto& device = run.config.runtime.device;
  const bool on_gpus = options.on_gpus && !(device && device->is_cpu());
  const bool by_nccl = kind == CommunicatorKind::automatic || kind == CommunicatorKind::nccl;
  if (!on_gpus || !by_nccl) return 0;
  return most_nccl_bytes(plan.mesh, {.ctas = static_cast<int>(run.config.sharding.nccl_ctas),
                                     .ranks_per_machine = ranks_per_node_of(options),
                                     .messages = sends_messages(run, plan),
                                     .windows = windows_of(run, plan)});
}

/// The mean over the stages of a pipeline of all but the entries, which are those of `stage`.
Timeline mean_of(const std::vector<Timeline>& stages, std::size_t stage) {
  Timeline mean = stages[stage];
  mean.exposed = mean.bubble = 0.0;
  mean.exposed_by_axis.clear();
  const auto count = static_cast<double>(stages.size());
  for (const Timeline& one : stages) {
    mean.exposed += one.exposed / count;
    mean.bubble += one.bubble / count;
    for (const auto& [axis, seconds] : one.exposed_by_axis) {
      mean.exposed_by_axis[axis] += seconds / count;
    }
  }
  return mean;
}

/// The second of two equal steps, whose passes hide the first one's update. Its entries are the first one's.
Timeline second_of(Timeline both, const Timeline& first) {
  both.entries = first.entries;
  both.seconds -= first.seconds;
  both.exposed -= first.exposed;
  both.bubble -= first.bubble;
  for (const auto& [axis, seconds] : first.exposed_by_axis) both.exposed_by_axis[axis] -= seconds;
  for (const auto& [resource, seconds] : first.chain) both.chain[resource] -= seconds;
  return both;
}

/// `fullest` is the place along the pipeline that the timeline is of.
StepTime time_of(const std::vector<StepMemory>& stages, std::size_t fullest,
                 const ResolvedConfig& run, const Plan& plan, const PlanOptions& options) {
  std::vector<RankLog> logs, logs_of_two;
  for (const StepMemory& stage : stages) {
    logs.push_back({.log = &stage.log, .calls = &stage.calls});
    if (!stage.log_of_two) continue;
    logs_of_two.push_back({.log = &*stage.log_of_two, .calls = &stage.calls_of_two});
  }
  const auto timelines_of = [&](const std::vector<RankLog>& of_ranks) {
    return run_clock(of_ranks, plan.mesh, *options.machine,
                     {.on_node = options.ranks / options.nodes,
                      .threads = threads_of(run, options),
                      .dtype = run.sharding.compute_dtype});
  };
  StepTime time{.timeline = {}, .stages = timelines_of(logs)};
  if (!logs_of_two.empty()) {
    const std::vector<Timeline> both = timelines_of(logs_of_two);
    for (std::size_t i = 0; i < both.size(); ++i)
      time.stages[i] = second_of(both[i], time.stages[i]);
  }
  time.timeline = mean_of(time.stages, fullest);
  time.tokens_per_second =
      static_cast<double>(tokens_per_step(run.config.data)) / time.timeline.seconds;
  return time;
}

/// Dry runs of one rank for each place along the pipeline, alike along all other axes: the fullest rank's
/// parameters are those of its stage, but the stage with the most activations may be fuller. Ends early, without a time,
/// with the first that takes more than `bytes`.
void run_stages(PlannedStrategy& figures, const ResolvedConfig& run, const Plan& plan,
                const PlanOptions& options, std::optional<std::int64_t> bytes) {
  int& fullest = figures.prediction.fullest_rank;
  const int stage_ranks = options.ranks / plan.pipeline.shape.ranks;
  figures.first_rank = fullest % stage_ranks;
  std::vector<StepMemory>& stages = figures.stages;
  const auto is_too_large = [&](const StepMemory& step) {
    if (!bytes || step.account.total.peak <= *bytes) return false;
    figures.step = step;
    return true;
  };
  if (bytes && !plan.pipeline.has_several() && shape_of(run.model).experts.layers == 0) {
    PlanOptions untimed = options;
    untimed.machine.reset();
    const StepMemory first =
        step_of(run, plan, figures.first_rank, untimed, AssumedLoad::Kind::even);
    if (is_too_large(first)) return;
  }
  for (int rank = figures.first_rank; rank < options.ranks; rank += stage_ranks) {
    stages.push_back(step_of(run, plan, rank, options, AssumedLoad::Kind::even));
    if (is_too_large(stages.back())) return;
  }
  auto place = static_cast<std::size_t>(fullest / stage_ranks);
  for (std::size_t other = 0; other < stages.size(); ++other) {
    if (stages[other].account.total.peak > stages[place].account.total.peak) place = other;
  }
  fullest = figures.first_rank + static_cast<int>(place) * stage_ranks;
  figures.step = stages[place];
  if (options.machine && (options.machine->host || !offloads(plan))) {
    figures.time = time_of(stages, place, run, plan, options);
  }
}

/// Without a time if a rank takes more than `bytes`.
PlannedStrategy figures_of(const ResolvedConfig& run, const LanguageModel& model, const Plan& plan,
                           const PlanOptions& options, std::optional<std::int64_t> bytes) {
  PlannedStrategy figures{.name = variant_name(run.sharding)};
  const int replicas = plan.mesh.size_along({"replica"}), shards = plan.mesh.size_along({"shard"});
  if (replicas > 1 && shards > 1) figures.mesh = fmt::format("{} x {}", replicas, shards);
  figures.prediction = predict(plan, ranks_per_node_of(options), state_bytes(run.config, model));
  figures.nccl_at_most = nccl_at_most(run, plan, options);
  if (bytes && figures.prediction.total.most > *bytes) return figures;
  run_stages(figures, run, plan, options, bytes);
  return figures;
}

/// With the bound of the peak.
PlannedStrategy bounded_figures_of(const ResolvedConfig& run, const LanguageModel& model,
                                   const Plan& plan, const PlanOptions& options) {
  PlannedStrategy figures = figures_of(run, model, plan, options, {});
  if (run.sharding.expert_parallel > 1) {
    const int fullest = figures.prediction.fullest_rank;
    figures.peak_at_most =
        step_of(run, plan, fullest, options, AssumedLoad::Kind::all_here).account.total.peak;
  }
  return figures;
}

std::int64_t expert_bytes_of(const LanguageModel& model, const ResolvedConfig& run, int ranks) {
  if (run.sharding.expert_parallel == 1) return 0;
  const TransformerShape& shape = model.shape();
  const DataConfig& data = run.config.data;
  std::int64_t block = 0, recomputed = 0;
  for (const auto& unit : model.units()) {
    const std::vector<Parameter>& parameters = unit->parameters();
    const bool has_experts = std::any_of(parameters.begin(), parameters.end(),
                                         [](const Parameter& p) { return p.stacked(); });
    const bool is_block = unit != model.units().front() && unit != model.units().back();
    const bool again = run.config.sharding.activation_checkpointing.recomputes(block);
    if (has_experts && again) ++recomputed;
    if (is_block) ++block;
  }
  const ExpertTraffic traffic = expert_traffic(shape, run.sharding);
  const std::int64_t tokens =
      tokens_per_step(data) / (data.accumulation_steps * batch_ranks(run.sharding, ranks));
  return balanced_bytes(traffic, shape, tokens, data.accumulation_steps, recomputed);
}

/// The plan, without figures.
PlanFigures plan_of(const Config& config, const PlanOptions& given) {
  PlanFigures all{.options = given};
  PlanOptions& options = all.options;
  options.ranks = ranks_of(config, options);
  check(options.nodes >= 1 && options.ranks % options.nodes == 0,
        "{} ranks cannot be spread evenly over {} nodes", options.ranks, options.nodes);
  all.run = on_ranks(resolve(with_batch_size(config, options.ranks)), options.ranks);
  check_sharding(all.run, options.ranks);
  check_model_keys(all.run);
  all.model = make_model(all.run);
  all.plan = make_plan(all.model->units(), all.run.sharding, machine_of(options));
  return all;
}

bool has_figures(const PlanLine& line) {
  return line.figures.has_value();
}

}  // namespace

int PlanFigures::ranks_per_node() const {
  return ranks_per_node_of(options);
}

bool has_cuts(const Mesh& mesh) {
  const auto is_cut = [](const Axis& axis) {
    return axis.size > 1 &&
           (axis.name == "tensor" || axis.name == "context" || axis.name == "pipeline");
  };
  return std::any_of(mesh.axes.begin(), mesh.axes.end(), is_cut);
}

Config suited_to(const Config& config, const PlanOptions& options) {
  const bool suits =
      config.sharding.strategy != StrategyKind::single || ranks_of(config, options) == 1;
  return suits ? config : variant_of(config, "fsdp");
}

PlanFigures plan_figures(const Config& config, const PlanOptions& options) {
  PlanFigures all = plan_of(config, options);
  all.figures = bounded_figures_of(all.run, *all.model, all.plan, all.options);
  all.expert_bytes = expert_bytes_of(*all.model, all.run, all.options.ranks);
  return all;
}

PlannedStrategy step_figures(const Config& config, const PlanOptions& options,
                             std::optional<std::int64_t> bytes) {
  const PlanFigures all = plan_of(config, options);
  return figures_of(all.run, *all.model, all.plan, all.options, bytes);
}

std::vector<PlannedStrategy> every_strategy(const PlanFigures& figures) {
  std::vector<PlannedStrategy> all;
  for (const std::string& name : strategy_variants()) {
    PlannedStrategy one{.name = name};
    try {
      ResolvedConfig run = figures.run;
      run.config = variant_of(figures.run.config, name);
      run.sharding = sharding_options(run.config);
      describe_to_sharding(run);
      const Plan plan =
          make_plan(figures.model->units(), run.sharding, machine_of(figures.options));
      one = bounded_figures_of(run, *figures.model, plan, figures.options);
      one.name = name;
      one.stages.clear();
    } catch (const Error& error) {
      one.problem = error.what();
    }
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<PlanLine> plan_lines(const Config& config, const std::vector<int>& ranks,
                                 PlanOptions options) {
  std::vector<PlanLine> lines;
  for (const int count : ranks) {
    options.ranks = count;
    PlanLine line{.ranks = count, .figures = {}, .strategies = {}, .problem = {}};
    try {
      line.figures.emplace(plan_figures(suited_to(config, options), options));
      line.ranks = line.figures->options.ranks;
      line.strategies = every_strategy(*line.figures);
    } catch (const Error& error) {
      line.problem = error.what();
    }
    lines.push_back(std::move(line));
  }
  const bool some = std::any_of(lines.begin(), lines.end(), has_figures);
  check(some, "{}", lines.front().problem);
  return lines;
}

const PlanFigures& first_figures(const std::vector<PlanLine>& lines) {
  return *std::find_if(lines.begin(), lines.end(), has_figures)->figures;
}

}  // namespace tessera
