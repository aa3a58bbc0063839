#include "sharding/plan/pipeline_schedule.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "runtime/check.h"

namespace tessera {
namespace {

using Kind = PipelinePass::Kind;

/// Pass k of a rank's forward passes, or of its backward passes. With chunks, p micro-batches go through a chunk before the
/// next chunk runs; backward begins with the last chunk.
PipelinePass pass(Kind kind, int k, const PipelineShape& shape) {
  const int group = shape.ranks * shape.chunks, in_group = k % group;
  if (shape.chunks == 1) return {kind, k, 0};
  const int chunk = in_group / shape.ranks;
  return {kind, k / group * shape.ranks + in_group % shape.ranks,
          kind == Kind::forward ? chunk : shape.chunks - 1 - chunk};
}

/// Forward passes before the first backward pass.
int warm_up(PipelineSchedule schedule, int rank, const PipelineShape& shape) {
  const int all = shape.micro_batches * shape.chunks, behind = shape.ranks - 1 - rank;
  if (schedule == PipelineSchedule::gpipe) return all;
  const int passes =
      shape.chunks == 1 ? behind + 1 : 2 * behind + (shape.chunks - 1) * shape.ranks + 1;
  return std::min(all, passes);
}

std::vector<PipelinePass> order_of(PipelineSchedule schedule, int rank,
                                   const PipelineShape& shape) {
  const bool split = schedule == PipelineSchedule::zero_bubble;
  const int all = shape.micro_batches * shape.chunks, warm = warm_up(schedule, rank, shape);
  std::vector<PipelinePass> passes;
  int weights = 0;  // micro-batches whose gradients of weights are computed
  for (int k = 0; k < warm; ++k) passes.push_back(pass(Kind::forward, k, shape));
  for (int k = 0; k < all; ++k) {
    passes.push_back(pass(split ? Kind::input_gradient : Kind::backward, k, shape));
    // Rank r leaves the weights of r micro-batches for the end, where it would wait.
    if (split && k >= rank) passes.push_back(pass(Kind::weight_gradient, weights++, shape));
    if (warm + k < all) passes.push_back(pass(Kind::forward, warm + k, shape));
  }
  while (split && weights < all) passes.push_back(pass(Kind::weight_gradient, weights++, shape));
  return passes;
}

/// A pass of a stage.
using Key = std::tuple<Kind, int, int>;

/// The pass that another one waits for, if it is not the rank's own.
std::optional<Key> awaited(const PipelinePass& one, int stage, int stages) {
  if (one.kind == Kind::weight_gradient) return std::nullopt;
  if (one.kind == Kind::forward) {
    return stage == 0 ? std::nullopt : std::optional(Key{one.kind, one.micro_batch, stage - 1});
  }
  return stage + 1 == stages ? std::nullopt
                             : std::optional(Key{one.kind, one.micro_batch, stage + 1});
}

double seconds_of(Kind kind, const PipelineCosts& costs, int chunks) {
  switch (kind) {
    case Kind::forward:
      return costs.forward / chunks;
    case Kind::backward:
      return (costs.input_gradient + costs.weight_gradient) / chunks;
    case Kind::input_gradient:
      return costs.input_gradient / chunks;
    default:
      return costs.weight_gradient / chunks;
  }
}

}  // namespace

std::vector<std::vector<PipelinePass>> pipeline_order(PipelineSchedule schedule,
                                                      const PipelineShape& shape) {
  check(shape.ranks > 0 && shape.chunks > 0 && shape.micro_batches > 0,
        "a pipeline needs ranks, chunks and micro-batches; there are {}, {} and {}", shape.ranks,
        shape.chunks, shape.micro_batches);
  if (schedule == PipelineSchedule::interleaved) {
    check(shape.micro_batches % shape.ranks == 0,
          "the schedule interleaved needs a multiple of {} micro-batches, the ranks of the "
          "pipeline; there are {}",
          shape.ranks, shape.micro_batches);
  } else {
    check(shape.chunks == 1,
          "the schedule {} has one chunk for each rank, and {} are asked for; choose interleaved",
          enum_name(schedule), shape.chunks);
  }
  std::vector<std::vector<PipelinePass>> order;
  for (int rank = 0; rank < shape.ranks; ++rank) order.push_back(order_of(schedule, rank, shape));
  return order;
}

PipelineTimes time_pipeline(const std::vector<std::vector<PipelinePass>>& order,
                            const PipelineShape& shape, const PipelineCosts& costs) {
  const std::size_t ranks = order.size();
  PipelineTimes times{.passes = std::vector<std::vector<PipelineTimes::Interval>>(ranks)};
  std::map<Key, double> ends;
  std::vector<double> free(ranks, 0.0), busy(ranks, 0.0);
  for (bool any = true; any;) {
    any = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::vector<PipelineTimes::Interval>& passes = times.passes[rank];
      while (passes.size() < order[rank].size()) {
        const PipelinePass& one = order[rank][passes.size()];
        const int stage = one.chunk * shape.ranks + static_cast<int>(rank);
        const auto other = awaited(one, stage, shape.ranks * shape.chunks);
        if (other && !ends.contains(*other)) break;
        const double seconds = seconds_of(one.kind, costs, shape.chunks);
        const double begin = std::max(free[rank], other ? ends[*other] : 0.0);
        passes.push_back({begin, begin + seconds});
        free[rank] = ends[{one.kind, one.micro_batch, stage}] = begin + seconds;
        busy[rank] += seconds;
        any = true;
      }
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    check(times.passes[rank].size() == order[rank].size(),
          "rank {} of the pipeline waits for a pass that never comes", rank);
    times.seconds = std::max(times.seconds, free[rank]);
  }
  for (const double rank : busy)
    times.bubble += (1.0 - rank / times.seconds) / static_cast<double>(ranks);
  return times;
}

int most_kept(const std::vector<PipelinePass>& passes) {
  int kept = 0, most = 0;
  for (const PipelinePass& one : passes) {
    if (one.kind == Kind::forward) ++kept;
    if (one.kind == Kind::backward || one.kind == Kind::weight_gradient) --kept;
    most = std::max(most, kept);
  }
  return most;
}

}  // namespace tessera
