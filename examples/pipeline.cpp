// The schedules of a pipeline of four ranks and eight micro-batches, for docs/pipeline_parallelism.md.
//
//   build/bin/pipeline             time, bubble and kept activations of every schedule
//   build/bin/pipeline SCHEDULE    a line per pass: rank, pass, micro-batch, chunk, begin, end
//
// A forward pass takes 1, the gradients of inputs 1, those of weights 1.
#include <fmt/format.h>

#include "runtime/error.h"
#include "sharding/plan/pipeline_schedule.h"

using namespace tessera;

namespace {

constexpr PipelineShape kShape = {.ranks = 4, .micro_batches = 8};

PipelineShape shape_of(PipelineSchedule schedule) {
  PipelineShape shape = kShape;
  if (schedule == PipelineSchedule::interleaved) shape.chunks = 2;
  return shape;
}

void print_table() {
  fmt::print("                  time   bubble   kept by rank 0\n");
  for (const PipelineSchedule schedule :
       {PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward,
        PipelineSchedule::interleaved, PipelineSchedule::zero_bubble}) {
    const PipelineShape shape = shape_of(schedule);
    const auto order = pipeline_order(schedule, shape);
    const PipelineTimes times = time_pipeline(order, shape, {});
    const double kept = static_cast<double>(most_kept(order[0])) / shape.chunks;
    fmt::print("{:<14} {:>7.1f}   {:>6.3f}   {:g} of 8 micro-batches\n", enum_name(schedule),
               times.seconds, times.bubble, kept);
  }
}

void print_passes(PipelineSchedule schedule) {
  constexpr std::string_view kNames[] = {"forward", "backward", "inputs", "weights"};
  const PipelineShape shape = shape_of(schedule);
  const auto order = pipeline_order(schedule, shape);
  const PipelineTimes times = time_pipeline(order, shape, {});
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    for (std::size_t i = 0; i < order[rank].size(); ++i) {
      const PipelinePass& one = order[rank][i];
      const auto& [begin, end] = times.passes[rank][i];
      fmt::print("{} {} {} {} {:g} {:g}\n", rank, kNames[static_cast<std::size_t>(one.kind)],
                 one.micro_batch, one.chunk, begin, end);
    }
  }
}

}  // namespace

int main(int argument_count, char** arguments) try {
  if (argument_count == 1) {
    print_table();
  } else {
    print_passes(enum_from_name<PipelineSchedule>(arguments[1]));
  }
} catch (const Error& error) {
  fmt::print(stderr, "pipeline: {}\n", error.what());
  return 1;
}
