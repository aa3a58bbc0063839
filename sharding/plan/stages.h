// Stages: the parts of a model that the ranks of a pipeline compute.
//
// The parts are the embedding, every block and the head, in forward order: as many as units, or one more if
// embedding and head are one unit. A stage is a run of neighbouring parts. Stage s is chunk s / p of rank
// s mod p along the axis "pipeline", which has p ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/unit.h"
#include "runtime/dtype.h"
#include "sharding/plan/pipeline_schedule.h"

namespace tessera {

/// Parts [first, last).
struct PartRange {
  int first = 0, last = 0;
  bool operator==(const PartRange&) const = default;
};

/// The number of parts of a model.
int part_count(const Units& units);

/// For each part, the parameters that a token is multiplied by: of `experts_per_token` experts only, if a layer
/// has experts; 0: all. An embedding looks one row up and costs nothing.
std::vector<std::int64_t> part_costs(const Units& units, int experts_per_token);

/// Cuts the parts into `count` stages as `rule` says:
///   ""          the dearest stage is as cheap as possible (part_costs), and each has a part
///   "h.4,head"  a stage begins at each of these units, and at the first unit
/// "head" is also the name of a head that is a part of the first unit. Raises Error if there are fewer parts than
/// stages, if the rule names another number of stages, or a unit that the model does not have.
std::vector<PartRange> cut_stages(const Units& units, const std::string& rule, int count,
                                  int experts_per_token);

/// Weights, the gradients of those that are trained, and all summands of these.
enum class TiedTensors { weights, gradients, summands };

/// A parameter of tied ends, as a rank of the first or the last stage has it.
struct TiedPart {
  Parameter parameter;
  /// Its part on a tensor rank (held_part.h).
  Shape shape;
  /// Gradients that the head leaves for it: one, or one of each leaf of a rank's tokens for the table, to
  /// which the embedding adds first (Parameter::leave_leaf_gradients).
  std::int64_t leaves = 1;

  /// Elements of the memory for one tensor of it.
  std::int64_t place() const;
  /// How many such tensors it has.
  std::int64_t count(TiedTensors of) const;
};

/// Elements of the memory for such tensors of all parts.
std::int64_t tied_elements(const std::vector<TiedPart>& parts, TiedTensors of);

/// The pipeline of a plan. Without one there is one rank, and one stage of all parts.
struct PipelinePlan {
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  PipelineShape shape = {};
  std::vector<PartRange> stages = {};
  /// The first stage that trains a parameter: the stages before it get no gradients.
  int first_trained = 0;
  /// A rank's part of a micro-batch's activations between two stages, and of their gradients: elements
  /// and dtype. Context ranks and tensor ranks have parts of the rows.
  std::int64_t message_elements = 0;
  DType message_dtype = DType::f32;
  std::int64_t counters = 0;  // as ShardingOptions::stage_counters

  /// The parameters of tied ends, which the last stage has a copy of; empty if the ends are not tied.
  std::vector<TiedPart> tied = {};

  bool has_several() const { return shape.ranks > 1; }
  int stage_count() const { return static_cast<int>(stages.size()); }
  bool is_last(int stage) const { return stage + 1 == stage_count(); }
  /// The place of the rank along the pipeline that computes this stage.
  int rank_of(int stage) const { return stage % shape.ranks; }
  int chunk_of(int stage) const { return stage / shape.ranks; }
  /// Whether the stage sends the gradient of its input to the stage before.
  bool sends_gradient(int stage) const { return stage > first_trained; }
  /// Whether gradients of weights have a pass of their own.
  bool splits_backward() const { return schedule == PipelineSchedule::zero_bubble; }
  /// Gradients of a head that may be on their way to the first stage. With as many as ranks no schedule waits
  /// for a slot in a circle.
  int tied_slots() const { return std::min(shape.ranks, shape.micro_batches); }
  /// The passes of one stage, in order. Raises Error as pipeline_order() does.
  std::vector<PipelinePass> passes_of(int stage) const;
};

}  // namespace tessera
