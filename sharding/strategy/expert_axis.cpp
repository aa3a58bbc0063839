#include "sharding/strategy/expert_axis.h"

#include "runtime/category.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"

namespace tessera {
namespace {

/// Rows as parts of a tensor [rows, C].
Parts parts_of(const Tensor& tensor, const std::vector<std::int64_t>& rows) {
  Parts parts{.tensor = tensor, .counts = {}};
  for (const std::int64_t count : rows) parts.counts.push_back(count * tensor.size(1));
  return parts;
}

}  // namespace

std::vector<std::int32_t> ExpertAxis::swap(const Tensor& sent) {
  const Span span("exposed communication");
  const CategoryScope category(Category::activations);
  const Tensor received = Tensor::empty(sent.shape(), sent.dtype());
  group_.all_to_all({received}, {sent}, context().compute_stream(), "offsets of experts");
  std::vector<std::int32_t> offsets = received.to_vector<std::int32_t>();
  group_.raise_if_aborted();  // the offsets become sizes
  return offsets;
}

void ExpertAxis::move(const Tensor& received, const std::vector<std::int64_t>& received_rows,
                      const Tensor& sent, const std::vector<std::int64_t>& sent_rows) {
  const Span span("exposed communication");
  group_.all_to_all_parts(parts_of(received, received_rows), parts_of(sent, sent_rows),
                          context().compute_stream(), "rows of experts");
}

Tensor gather_experts(const Parameter& parameter, const Tensor& part, Communicator& group) {
  const Tensor whole = Tensor::empty(parameter.shape(), part.dtype());
  const std::int64_t count = part.size(0), first = group.rank() * count;
  whole.slice(first, first + count).copy_from(part);
  const Stream& stream = communication_stream();
  stream.wait(context().compute_stream().record());
  wait_for_communication(group.all_gather({whole}, stream, parameter.name()));
  return whole;
}

}  // namespace tessera
