#include "sharding/strategy/tensor_ranks.h"

#include "sharding/comm/stream.h"

namespace tessera {

TensorRanks::TensorRanks(const Groups& groups, int sum_parts)
    : TensorAxis(groups.sums == nullptr ? 1 : groups.sums->size(),
                 groups.sums == nullptr ? 0 : groups.sums->rank(), sum_parts,
                 groups.rows == nullptr ? RowExchange::together : RowExchange::by_rank),
      groups_(groups),
      rows_(groups.rows == nullptr ? Stream() : context().side_stream("rows of tensor ranks")) {}

TensorRanks::~TensorRanks() {
  if (groups_.rows != nullptr) rows_.enqueue([rows = groups_.rows] {});
}

void TensorRanks::start() {
  if (groups_.rows != nullptr) rows_.wait(communication_stream().record());
}

Event TensorRanks::shift(const Tensor& received, const Tensor& sent, int distance) {
  rows_.wait(context().compute_stream().record());
  return groups_.rows->shift(received, sent, distance, rows_, "rows of tensor ranks");
}

void TensorRanks::wait(const Event& arrival) {
  wait_for_communication(arrival);
}

void TensorRanks::all_gather(const Tensor& whole) {
  if (groups_.sums == nullptr) return;
  const Span span("exposed communication");
  groups_.sums->all_gather({whole}, context().compute_stream(), "rows of tensor ranks");
}

void TensorRanks::reduce_scatter(const Tensor& part, const Tensor& whole) {
  if (groups_.sums == nullptr) return part.copy_from(whole);
  const Span span("exposed communication");
  groups_.sums->reduce_scatter({part}, {whole}, context().compute_stream(), "sums of tensor ranks");
}

void TensorRanks::all_reduce(const Tensor& x) {
  if (groups_.sums == nullptr) return;
  const Span span("exposed communication");
  groups_.sums->all_reduce({x}, context().compute_stream(), "sums of tensor ranks");
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
