#include "sharding/strategy/tensor_ranks.h"

#include "runtime/context.h"
#include "sharding/comm/stream.h"

namespace tessera {

void TensorRanks::all_gather(const Tensor& whole) {
  if (group_ == nullptr) return;
  const Span span("exposed communication");
  group_->all_gather({whole}, context().compute_stream(), "rows of tensor ranks");
}

void TensorRanks::reduce_scatter(const Tensor& part, const Tensor& whole) {
  if (group_ == nullptr) return part.copy_from(whole);
  const Span span("exposed communication");
  group_->reduce_scatter({part}, {whole}, context().compute_stream(), "sums of tensor ranks");
}

void TensorRanks::all_reduce(const Tensor& x) {
  if (group_ == nullptr) return;
  const Span span("exposed communication");
  group_->all_reduce({x}, context().compute_stream(), "sums of tensor ranks");
}

Tensor gather_tensor_parts(const Parameter& parameter, const CutSizes& sizes, const Tensor& part,
                           Communicator& group) {
  const std::int64_t each = part.numel();
  const Tensor parts = Tensor::empty({group.size() * each}, part.dtype());
  const std::int64_t own = group.rank() * each;
  parts.slice(own, own + each).copy_from(part.reshape({each}));
  const Stream& stream = communication_stream();
  stream.wait(context().compute_stream().record());
  wait_for_communication(group.all_gather({parts}, stream, parameter.name()));
  // The ranks' parts of the experts here, as if they were all.
  const CutSizes undivided = {.experts = sizes.experts};
  const Tensor whole = Tensor::empty({held_shape(parameter, undivided).numel()}, part.dtype());
  for (int rank = 0; rank < group.size(); ++rank) {
    const HeldPart held = held_part(parameter, sizes, /*expert=*/0, rank);
    held.elements.for_each_run(
        held.count, [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
          const std::int64_t from = rank * each + offset;
          whole.slice(element, element + count).copy_from(parts.slice(from, from + count));
        });
  }
  return whole.reshape(held_shape(parameter, undivided));
}

}  // namespace tessera
