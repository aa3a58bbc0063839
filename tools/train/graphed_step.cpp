#include "tools/train/graphed_step.h"

#include "runtime/backends.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cuda/graph.h"
#include "runtime/describe.h"
#include "sharding/comm/stream.h"

namespace tessera {
namespace {

/// Gives the tensor memory of its own at the first call.
void fill_place(Tensor& place, const Tensor& values) {
  if (!values.defined()) return;
  if (!place.defined()) place = Tensor::empty(values.shape(), values.dtype());
  check(place.shape() == values.shape(),
        "runtime.graph: a batch is {} after batches of {}; a graph takes one shape",
        describe(values), describe(place));
  place.copy_from(values);
}

}  // namespace

void GraphedStep::fill(const StepInputs& inputs) {
  fill_place(sums_, inputs.sums);
  for (std::size_t i = 0; i < batches_.size(); ++i) {
    const Batch batch = inputs.batch(static_cast<std::int64_t>(i));
    fill_place(batches_[i].inputs, batch.inputs);
    fill_place(batches_[i].targets, batch.targets);
    fill_place(batches_[i].soft.classes, batch.soft.classes);
    fill_place(batches_[i].soft.weights, batch.soft.weights);
  }
}

GradientNorm GraphedStep::run(const StepNumbers& numbers, const StepInputs& inputs,
                              const Work& work) {
  fill(inputs);
  StepValues& values = context().state<StepValues>();
  values.reserve();
  values.set(numbers);
  const StepInputs places = {
      .sums = sums_,
      .batch = [this](std::int64_t i) { return batches_[static_cast<std::size_t>(i)]; },
      .rows = inputs.rows};
  if (++steps_ == 1 || context().is_dry()) return work(places);
  if constexpr (kHasCuda) {
    if (graph_ == nullptr) {
      graph_ = std::make_shared<cuda::Graph>(std::vector{communication_stream()},
                                             [&] { norm_ = work(places); });
    }
    const Span span("graph");
    graph_->launch();
  }
  return norm_;
}

std::int64_t GraphedStep::nodes() const {
  if constexpr (kHasCuda) {
    if (graph_ != nullptr) return static_cast<std::int64_t>(graph_->nodes());
  }
  return 0;
}

}  // namespace tessera
