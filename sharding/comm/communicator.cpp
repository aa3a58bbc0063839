#include "sharding/comm/communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/capture.h"
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

void check_parts(const Parts& parts, int ranks) {
  const std::vector<std::int64_t>& counts = parts.counts;
  const bool negative =
      std::any_of(counts.begin(), counts.end(), [](std::int64_t count) { return count < 0; });
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  check(
      counts.size() == static_cast<std::size_t>(ranks) && !negative && sum == parts.tensor.numel(),
      "all_to_all: parts of {} elements are not {} parts of {}", fmt::join(counts, ", "), ranks,
      describe(parts.tensor));
}

/// K where ranks 0..K-1, K..2K-1, ... are the nodes' ranks; 1 where there is no such K.
int count_ranks_per_node(const std::vector<int>& nodes) {
  const auto first_end =
      std::find_if(nodes.begin(), nodes.end(), [&](int node) { return node != nodes.front(); });
  const auto each = static_cast<std::size_t>(first_end - nodes.begin());
  if (nodes.size() % each != 0) return 1;
  std::vector<int> seen;
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    if (r % each != 0) {
      if (nodes[r] != seen.back()) return 1;
    } else if (std::find(seen.begin(), seen.end(), nodes[r]) != seen.end()) {
      return 1;
    } else {
      seen.push_back(nodes[r]);
    }
  }
  return static_cast<int>(each);
}

}  // namespace

Communicator::Communicator(int rank, std::vector<int> nodes, const Communicator* parent,
                           CheckCollectives check)
    : rank_(rank),
      nodes_(std::move(nodes)),
      ranks_per_node_(count_ranks_per_node(nodes_)),
      family_(parent != nullptr ? parent->family_ : std::make_shared<Family>()),
      own_bytes_sent_(std::make_shared<std::atomic<std::int64_t>>(0)) {
  if (parent == nullptr) family_->check = check;
  const std::lock_guard lock(family_->mutex);
  family_->members.push_back(this);
}

Communicator::~Communicator() {
  const std::lock_guard lock(family_->mutex);
  std::erase(family_->members, this);
}

Event Communicator::all_gather(const Tensors& wholes, const Stream& stream, std::string label) {
  check_divisible(Collective::all_gather, wholes, size());
  return queue({.collective = Collective::all_gather, .outputs = wholes, .label = std::move(label)},
               stream);
}

Event Communicator::reduce_scatter(const Tensors& parts, const Tensors& wholes,
                                   const Stream& stream, std::string label, Reduction reduction) {
  check_pairs(Collective::reduce_scatter, parts, wholes);
  check_divisible(Collective::reduce_scatter, wholes, size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check(parts[i].numel() * size() == wholes[i].numel(),
          "reduce_scatter: {} is not one of {} parts of {}", describe(parts[i]), size(),
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
  check(root >= 0 && root < size(), "broadcast: there is no rank {} of {}", root, size());
  return queue({.collective = Collective::broadcast,
                .outputs = tensors,
                .root = root,
                .label = std::move(label)},
               stream);
}

Event Communicator::reduce(const Tensors& tensors, int root, const Stream& stream,
                           std::string label, Reduction reduction) {
  check(root >= 0 && root < size(), "reduce: there is no rank {} of {}", root, size());
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
  check_divisible(Collective::all_to_all, sent, size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    check(received[i].numel() == sent[i].numel() && received[i].dtype() == sent[i].dtype(),
          "all_to_all: {} cannot receive from {}: counts and dtypes must be equal",
          describe(received[i]), describe(sent[i]));
  }
  return queue({.collective = Collective::all_to_all,
                .outputs = received,
                .inputs = sent,
                .label = std::move(label)},
               stream);
}

Event Communicator::all_to_all_parts(const Parts& received, const Parts& sent, const Stream& stream,
                                     std::string label) {
  for (const Parts* const parts : {&received, &sent}) check_parts(*parts, size());
  const auto own = static_cast<std::size_t>(rank());
  check(received.tensor.dtype() == sent.tensor.dtype() && received.counts[own] == sent.counts[own],
        "all_to_all: {} cannot receive from {}: the dtype and the rank's own part must be equal",
        describe(received.tensor), describe(sent.tensor));
  return queue({.collective = Collective::all_to_all,
                .outputs = {received.tensor},
                .inputs = {sent.tensor},
                .label = std::move(label),
                .sent_counts = sent.counts,
                .received_counts = received.counts},
               stream);
}

Event Communicator::shift(const Tensor& received, const Tensor& sent, int distance,
                          const Stream& stream, std::string label) {
  check(distance >= 0 && distance < size(), "shift: there is no rank {} behind this one of {}",
        distance, size());
  check(received.numel() == sent.numel() && received.dtype() == sent.dtype(),
        "shift: {} cannot receive from {}: counts and dtypes must be equal", describe(received),
        describe(sent));
  return queue({.collective = Collective::shift,
                .outputs = {received},
                .inputs = {sent},
                .root = distance,
                .label = std::move(label)},
               stream);
}

Event Communicator::barrier(const Stream& stream) {
  return queue({.collective = Collective::barrier}, stream);
}

std::int64_t Communicator::bytes_sent() const {
  return std::accumulate(
      std::begin(family_->bytes_sent), std::end(family_->bytes_sent), std::int64_t{0},
      [](std::int64_t sum, const std::atomic<std::int64_t>& bytes) { return sum + bytes.load(); });
}

std::unique_ptr<Communicator> Communicator::split(int color) {
  Call call{.collective = Collective::split, .root = color};
  issue(call);
  return split_by(call);
}

std::unique_ptr<Communicator> Communicator::split(const std::function<int(int)>& color_of) {
  return split(color_of(rank()));
}

Tensor Communicator::buffer(std::int64_t elements, DType dtype) {
  return Tensor::zeros({elements}, dtype);
}

void Communicator::raise_if_aborted() {
  if (const auto reason = aborted()) throw Error(*reason);
}

bool Communicator::compares_every_call() const {
  return family_->check == CheckCollectives::always || family_->steps < kStepsCompared;
}

void Communicator::issue(Call& call) {
  call.number = calls_++;
  call.compared = compares_every_call();
  if (!call.compared) history_.add(call);
}

Event Communicator::queue(Call call, const Stream& stream) {
  issue(call);
  stream.enqueue([this, call = std::move(call)] {
    const Span span(
        fmt::format("{}{}{}", name_of(call.collective), call.label.empty() ? "" : " ", call.label),
        SpanUse::trace);
    const TimePoint begin = TimePoint::now();
    const auto count = [&sent = family_->bytes_sent[static_cast<int>(call.collective)],
                        own = own_bytes_sent_, bytes = perform(call)] {
      sent += bytes;
      *own += bytes;
    };
    is_capturing() ? before_every_launch(count) : count();
    family_->times.add(kBusy, current_stream().name(), begin, TimePoint::now());
  });
  return stream.record();
}

void Communicator::next_step(const Stream& stream) {
  if (!compares_every_call()) {
    std::unique_lock lock(family_->mutex);
    const std::vector<Communicator*> members = family_->members;
    lock.unlock();
    for (Communicator* const member : members) {
      stream.enqueue(
          [member, history = std::exchange(member->history_, {})] { member->agree(history); });
    }
  }
  ++family_->steps;
}

}  // namespace tessera
