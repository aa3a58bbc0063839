// The text of a plan.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "sharding/plan/plan.h"

namespace tessera {
namespace {

std::string text_of(Masters masters) {
  switch (masters) {
    case Masters::in_buffer:
      return "windows into the buffers that units compute with";
    case Masters::separate:
      return "in memory of their own";
    case Masters::on_host:
      return "in host memory";
  }
  return {};
}

std::string text_of(GradientCase gradients) {
  switch (gradients) {
    case GradientCase::reduce_in_place:
      return "a buffer per bucket, reduced in place once a step";
    case GradientCase::sum_then_reduce:
      return "a buffer per bucket sums the micro-batches, then is reduced into the shards";
    case GradientCase::accumulate_from_buffer:
      return "a buffer per bucket, reduced and added to the shards after each micro-batch";
    case GradientCase::accumulate_from_slot:
      return "two slots shared by turns, reduced and added to the shards after each micro-batch";
  }
  return {};
}

std::string parameters_of(const GroupPlan& group) {
  const Placement& placement = group.placement;
  if (placement.parameters == Held::whole) {
    return fmt::format("whole on every rank, in {}", name_of(placement.window_dtype));
  }
  const std::string gathered = fmt::format(
      "gathered in {} into {} slots", name_of(placement.window_dtype), group.gather_slots.count);
  switch (placement.reshard) {
    case Reshard::to_all:
      return gathered + ", resharded after forward";
    case Reshard::to_groups:
      return fmt::format("{}, resharded to groups of {} after forward", gathered,
                         placement.reshard_ranks);
    case Reshard::never:
      return gathered + ", kept until the weights change";
  }
  return {};
}

std::string elastic_line(const Plan& plan) {
  return fmt::format(
      "elastic     {} micro-batch{} per rank in a binary tree, {} partial sum{} kept\n",
      plan.micro_batches, plan.micro_batches == 1 ? "" : "es", plan.partial_sums,
      plan.partial_sums == 1 ? "" : "s");
}

std::string pipeline_lines(const PipelinePlan& pipeline) {
  if (!pipeline.has_several()) return "";
  std::vector<std::string> parts;
  for (const PartRange& stage : pipeline.stages) {
    parts.push_back(fmt::format("{}", stage.last - stage.first));
  }
  const PipelineTimes times =
      time_pipeline(pipeline_order(pipeline.schedule, pipeline.shape), pipeline.shape, {});
  return fmt::format(
      "pipeline    {}, {} stages of {} parts, {} micro-batch{}: at best ranks wait {:.0f}% of the "
      "time\n",
      enum_name(pipeline.schedule), pipeline.stage_count(), fmt::join(parts, ", "),
      pipeline.shape.micro_batches, pipeline.shape.micro_batches == 1 ? "" : "es",
      100.0 * times.bubble);
}

std::string sent_in(const GroupPlan& group) {
  const Placement& placement = group.placement;
  if (placement.gradient_dtype != DType::f32)
    return fmt::format("; held and sent in {}", name_of(placement.gradient_dtype));
  const DType dtype = placement.reduce_dtype;
  return dtype == DType::f32 ? "" : fmt::format("; sent in {}", name_of(dtype));
}

/// The matrices that the update needs whole, and the operations of the busiest rank.
std::string matrices_of(const GroupPlan& group) {
  const MatrixPlan& plan = group.matrices;
  if (plan.matrices.empty()) return "";
  const std::vector<double> flops = matrix_flops(plan);
  const double most = *std::max_element(flops.begin(), flops.end());
  const double mean = std::accumulate(flops.begin(), flops.end(), 0.0) / plan.ranks;
  std::int64_t bytes = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    bytes = std::max(bytes, matrix_bytes_sent(group, rank));
  }
  return fmt::format(
      "matrices    {} orthogonalized in {}, each by one of {} rank{}: {:.3g} GFLOP for the busiest "
      "({:.2f} of the mean), {} bytes sent\n",
      plan.matrices.size(), name_of(plan.matrices.front().dtype), plan.ranks,
      plan.ranks == 1 ? "" : "s", most / 1e9, most / mean, bytes);
}

std::int64_t elements_of(const GroupPlan& group) {
  std::int64_t elements = 0;
  for (const BucketLayout& bucket : group.buckets()) {
    for (const Parameter& parameter : bucket.parameters) elements += parameter.numel();
  }
  return elements;
}

}  // namespace

std::string to_string(const Plan& plan) {
  std::string text = fmt::format("mesh        {}\n", to_string(plan.mesh));
  text += pipeline_lines(plan.pipeline);
  if (plan.elastic) text += elastic_line(plan);
  for (const GroupPlan& group : plan.groups) {
    const std::string stage =
        plan.pipeline.has_several() ? fmt::format("stage {}, ", group.stage) : "";
    text +=
        fmt::format("\n{}{}: {} parameters in {} bucket{}\n", stage, group.placement.name,
                    elements_of(group), group.bucket_count(), group.bucket_count() == 1 ? "" : "s");
    text += fmt::format("layout      {}, {} shard{} x {} replica{}\n",
                        name_of(group.placement.layout), group.shards, group.shards == 1 ? "" : "s",
                        group.replicas, group.replicas == 1 ? "" : "s");
    if (group.expert_ranks() > 1) {
      text += fmt::format(
          "experts     1/{} of each layer's, whole; layout, parameters and masters "
          "are of these\n",
          group.expert_ranks());
      if (plan.experts.sums == ExpertSums::fast) {
        text += "sums        one gradient of an expert from the rows of all these ranks\n";
      }
      if (plan.experts.pieces > 1) {
        text +=
            fmt::format("rows        travel in {} pieces, one under the computation of another\n",
                        plan.experts.pieces);
      }
    }
    text += fmt::format("parameters  {}\n", parameters_of(group));
    text += fmt::format("masters     {}, {}\n", name_of(group.placement.master_dtype),
                        text_of(group.masters));
    text += fmt::format("gradients   {}{}\n", text_of(group.gradients), sent_in(group));
    if (group.sums_replicas_once) text += "replicas    summed after the last micro-batch\n";
    text += matrices_of(group);
  }
  return text;
}

}  // namespace tessera
