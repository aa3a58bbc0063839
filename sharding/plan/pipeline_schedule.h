// Schedules of a pipeline: the order in which each rank runs the passes of its micro-batches, and when.
//
// p ranks have the layers of a model in order. Each has v chunks of neighbouring layers: chunk c of rank r is stage c p + r.
// The activations of a micro-batch go from stage to stage, and its gradients come back.
//
//   gpipe        all forward passes, then all backward passes (Huang et al. 2019)
//   1f1b         a backward pass as soon as there is one, so a rank keeps at most p micro-batches (Narayanan et al. 2021)
//   interleaved  1f1b with v > 1: the bubble is 1 / v as long, and v times as many activations travel (Narayanan et al. 2021)
//   zero_bubble  1f1b whose backward pass is cut in two: the gradient of the input, for which the rank before waits, and
//                those of the weights, which fill the bubble. The schedule ZB-H1 of Qi et al. 2024 (arXiv 2401.10241)
#pragma once

#include <vector>

#include "runtime/enum_names.h"

namespace tessera {

enum class PipelineSchedule { gpipe, one_forward_one_backward, interleaved, zero_bubble };
template <>
inline constexpr EnumNames<PipelineSchedule> kEnumNames<PipelineSchedule> = {
    "pipeline schedule", {"gpipe", "1f1b", "interleaved", "zero_bubble"}};

struct PipelineShape {
  int ranks = 1;
  int micro_batches = 1;
  /// Chunks of a rank; more than one for `interleaved` only.
  int chunks = 1;
};

struct PipelinePass {
  enum class Kind { forward, backward, input_gradient, weight_gradient };
  Kind kind = Kind::forward;
  int micro_batch = 0;
  int chunk = 0;
};

/// The passes of each rank in order. Raises Error for a shape that the schedule does not have: chunks without
/// `interleaved`, or micro-batches that p does not divide with it.
std::vector<std::vector<PipelinePass>> pipeline_order(PipelineSchedule schedule,
                                                      const PipelineShape& shape);

/// Seconds of a rank for a micro-batch, all chunks together. A backward pass takes the last two.
struct PipelineCosts {
  double forward = 1.0, input_gradient = 1.0, weight_gradient = 1.0;
};

struct PipelineTimes {
  struct Interval {
    double begin = 0.0, end = 0.0;
  };
  /// By rank and pass, in seconds.
  std::vector<std::vector<Interval>> passes;
  /// The end of the last pass.
  double seconds = 0.0;
  /// The part of the time in which a rank waits, as the mean over ranks.
  double bubble = 0.0;
};

/// When each pass begins if messages take no time: behind the rank's pass before it, and behind the same micro-batch on the
/// stage that it comes from. Raises Error if a pass waits for one that never comes.
PipelineTimes time_pipeline(const std::vector<std::vector<PipelinePass>>& order,
                            const PipelineShape& shape, const PipelineCosts& costs);

/// The most activations of a chunk and micro-batch that a rank keeps: from forward to the end of backward.
int most_kept(const std::vector<PipelinePass>& passes);

}  // namespace tessera
