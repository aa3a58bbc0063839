#include "sharding/strategy/expert_axis.h"

#include <utility>

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

ExpertAxis::ExpertAxis(std::shared_ptr<Communicator> group, const ExpertChoices& choices)
    : ExpertExchange(choices),
      group_(std::move(group)),
      stream_(context().side_stream("rows of experts")) {}

ExpertAxis::~ExpertAxis() {
  stream_.enqueue([group = group_] {});
}

void ExpertAxis::start() {
  stream_.wait(communication_stream().record());
}

std::vector<std::int32_t> ExpertAxis::swap(const Tensor& sent) {
  const CategoryScope category(Category::activations);
  const Tensor received = Tensor::empty(sent.shape(), sent.dtype());
  stream_.wait(context().compute_stream().record());
  wait(group_->all_to_all({received}, {sent}, stream_, "offsets of experts"));
  std::vector<std::int32_t> offsets = received.to_vector<std::int32_t>();
  group_->raise_if_aborted();  // the offsets become sizes
  return offsets;
}

Event ExpertAxis::move(const Tensor& received, const std::vector<std::int64_t>& received_rows,
                       const Tensor& sent, const std::vector<std::int64_t>& sent_rows) {
  stream_.wait(context().compute_stream().record());
  return group_->all_to_all_parts(parts_of(received, received_rows), parts_of(sent, sent_rows),
                                  stream_, "rows of experts");
}

void ExpertAxis::wait(const Event& arrival) {
  wait_for_communication(arrival);
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
