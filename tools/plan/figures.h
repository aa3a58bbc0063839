// The figures of a planned run on one number of ranks: memory, traffic, and other strategies.
//
// plan.cpp prints a page of them, sweep.cpp tables, json.cpp JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "sharding/plan/plan.h"
#include "sharding/plan/virtual_clock.h"
#include "tools/plan/dry_run.h"
#include "tools/plan/plan.h"
#include "tools/plan/prediction.h"
#include "tools/train/resolve.h"

namespace tessera {

/// A step as the virtual clock has it: from a common start to the end of its communication.
struct StepTime {
  /// The fullest rank's. In a pipeline the exposed times and the bubble are means over its stages.
  Timeline timeline;
  /// A rank's for each place along the pipeline.
  std::vector<Timeline> stages;
  /// Tokens of all ranks per second.
  double tokens_per_second = 0.0;
};

/// One strategy's figures.
struct PlannedStrategy {
  std::string name;
  /// The mesh of hsdp, replicas x shards: "16 x 8". Empty for the others.
  std::string mesh;
  Prediction prediction;
  /// The dry run of the fullest rank, by the CPU's kernels. With expert_parallel all experts get
  /// equally many rows. No value if there is a problem, or from step_figures() without a step.
  std::optional<StepMemory> step;
  /// With time: the dry runs of StepTime::stages, and the rank of the first.
  std::vector<StepMemory> stages;
  int first_rank = 0;
  /// With PlanOptions::machine; no value with offloading on a machine without rates of its host.
  std::optional<StepTime> time;
  /// With expert_parallel: the bytes at the peak if all tokens of all ranks take this rank's experts,
  /// which no routing exceeds. Else 0.
  std::int64_t peak_at_most = 0;
  /// Bytes of a GPU at most that NCCL's buffers take besides (sharding/plan/nccl_memory.h). 0 on CPUs, and
  /// where NCCL moves nothing.
  std::int64_t nccl_at_most = 0;
  /// If it is not empty, the strategy does not suit the ranks, and there are no figures.
  std::string problem;

  /// Bytes at the peak of a step; 0: not predicted.
  std::int64_t peak() const { return step ? step->account.total.peak : 0; }
};

/// A configuration on `options.ranks` ranks.
struct PlanFigures {
  PlanOptions options;
  ResolvedConfig run;
  std::unique_ptr<LanguageModel> model;
  Plan plan;
  PlannedStrategy figures;
  /// Bytes that a rank sends in a step for rows on their way to experts and back, if all experts get
  /// equally many tokens. 0 without expert_parallel.
  std::int64_t expert_bytes = 0;

  /// 0 on one node.
  int ranks_per_node() const;
};

/// Whether the ranks share out more than the batch and experts: tokens of a row, layers, or stages.
bool has_cuts(const Mesh& mesh);

/// The configuration to plan on `options.ranks` ranks: fsdp in place of single, which suits one rank.
Config suited_to(const Config& config, const PlanOptions& options);

/// Raises Error as plan() does, and for strategy single on several ranks.
PlanFigures plan_figures(const Config& config, const PlanOptions& options);

/// The figures of the configured strategy without peak_at_most. If a rank takes more than `bytes`, there is no time. If
/// parameters, gradients, optimizer state and slots alone take more, there is no step either. Raises Error as
/// plan_figures() does.
PlannedStrategy step_figures(const Config& config, const PlanOptions& options,
                             std::optional<std::int64_t> bytes);

/// The same configuration under every strategy, in the order of strategy_variants().
std::vector<PlannedStrategy> every_strategy(const PlanFigures& figures);

/// A number of ranks, and its figures or the reason why there are none.
struct PlanLine {
  int ranks = 0;
  std::optional<PlanFigures> figures;
  std::vector<PlannedStrategy> strategies;
  std::string problem;
};

/// A line for each number of ranks. Raises the first line's problem as Error if no line has figures.
std::vector<PlanLine> plan_lines(const Config& config, const std::vector<int>& ranks,
                                 PlanOptions options);

/// The figures of the first line that has any.
const PlanFigures& first_figures(const std::vector<PlanLine>& lines);

}  // namespace tessera
