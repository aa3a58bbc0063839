#include "sharding/comm/communicator.h"

#include <numeric>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

void check_divisible(Collective collective, const Tensors& tensors, int ranks) {
  for (const Tensor& tensor : tensors) {
    check(tensor.numel() % ranks == 0, "{}: {} cannot be cut into {} equal parts",
          name_of(collective), describe(tensor), ranks);
  }
}

void check_pairs(Collective collective, const Tensors& outputs, const Tensors& inputs) {
  check(outputs.size() == inputs.size(), "{}: {} outputs for {} inputs", name_of(collective),
        outputs.size(), inputs.size());
}

}  // namespace

Event Communicator::all_gather(const Tensors& wholes, const Stream& stream, std::string label) {
  check_divisible(Collective::all_gather, wholes, size_);
  return queue({.collective = Collective::all_gather, .outputs = wholes, .label = std::move(label)},
               stream);
}

Event Communicator::reduce_scatter(const Tensors& parts, const Tensors& wholes,
                                   const Stream& stream, std::string label, Reduction reduction) {
  check_pairs(Collective::reduce_scatter, parts, wholes);
  check_divisible(Collective::reduce_scatter, wholes, size_);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check(parts[i].numel() * size_ == wholes[i].numel(),
          "reduce_scatter: {} is not one of {} parts of {}", describe(parts[i]), size_,
          describe(wholes[i]));
  }
  return queue({.collective = Collective::reduce_scatter,
                .outputs = parts,
                .inputs = wholes,
                .reduction = reduction,
                .label = std::move(label)},
               stream);
}

Event Communicator::all_reduce(const Tensors& tensors, const Stream& stream, std::string label,
                               Reduction reduction) {
  return queue({.collective = Collective::all_reduce,
                .outputs = tensors,
                .reduction = reduction,
                .label = std::move(label)},
               stream);
}

Event Communicator::broadcast(const Tensors& tensors, int root, const Stream& stream,
                              std::string label) {
  check(root >= 0 && root < size_, "broadcast: there is no rank {} of {}", root, size_);
  return queue({.collective = Collective::broadcast,
                .outputs = tensors,
                .root = root,
                .label = std::move(label)},
               stream);
}

Event Communicator::reduce(const Tensors& tensors, int root, const Stream& stream,
                           std::string label, Reduction reduction) {
  check(root >= 0 && root < size_, "reduce: there is no rank {} of {}", root, size_);
  return queue({.collective = Collective::reduce,
                .outputs = tensors,
                .root = root,
                .reduction = reduction,
                .label = std::move(label)},
               stream);
}

Event Communicator::all_to_all(const Tensors& received, const Tensors& sent, const Stream& stream,
                               std::string label) {
  check_pairs(Collective::all_to_all, received, sent);
  check_divisible(Collective::all_to_all, sent, size_);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    check(received[i].numel() == sent[i].numel() && received[i].dtype() == sent[i].dtype(),
          "all_to_all: {} cannot receive what {} sends", describe(received[i]), describe(sent[i]));
  }
  return queue({.collective = Collective::all_to_all,
                .outputs = received,
                .inputs = sent,
                .label = std::move(label)},
               stream);
}

Event Communicator::barrier(const Stream& stream) {
  return queue({.collective = Collective::barrier}, stream);
}

std::int64_t Communicator::bytes_sent() const {
  return std::accumulate(
      std::begin(traffic_->bytes_sent), std::end(traffic_->bytes_sent), std::int64_t{0},
      [](std::int64_t sum, const std::atomic<std::int64_t>& bytes) { return sum + bytes.load(); });
}

Event Communicator::queue(Call call, const Stream& stream) {
  stream.enqueue([this, call = std::move(call)] {
    const Span span(
        fmt::format("{}{}{}", name_of(call.collective), call.label.empty() ? "" : " ", call.label));
    const TimePoint begin = TimePoint::now();
    traffic_->bytes_sent[static_cast<int>(call.collective)] += perform(call);
    traffic_->times.add(kBusy, current_stream().name(), begin, TimePoint::now());
  });
  return stream.record();
}

}  // namespace tessera
