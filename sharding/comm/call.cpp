#include "sharding/comm/call.h"

#include <algorithm>
#include <numeric>

#include "runtime/check.h"
#include "runtime/describe.h"
#include "runtime/hash.h"

namespace tessera {
namespace {

void add(Fnv1a& hash, const Tensors& tensors, bool equal_counts) {
  hash.add(static_cast<std::uint64_t>(tensors.size()));
  for (const Tensor& tensor : tensors) {
    hash.add(static_cast<std::uint64_t>(tensor.dtype()));
    if (equal_counts) hash.add(static_cast<std::uint64_t>(tensor.numel()));
  }
}

}  // namespace

std::string describe(const Call& call) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : call.outputs) bytes += tensor.bytes();
  return fmt::format("call {}, {} of {} bytes in {} tensor{}{}{}", call.number,
                     name_of(call.collective), bytes, call.outputs.size(),
                     call.outputs.size() == 1 ? "" : "s", call.label.empty() ? "" : ", for ",
                     call.label);
}

std::uint64_t fingerprint(const Call& call) {
  Fnv1a hash;
  hash.add(call.number);
  hash.add(static_cast<std::uint64_t>(call.collective));
  hash.add(static_cast<std::uint64_t>(call.reduction));
  if (call.collective != Collective::split) hash.add(static_cast<std::uint64_t>(call.root));
  const bool equal_counts = call.sent_counts.empty();
  hash.add(static_cast<std::uint64_t>(equal_counts));
  add(hash, call.outputs, equal_counts);
  add(hash, call.inputs, equal_counts);
  hash.add(std::string_view(call.label));
  return hash.value();
}

int first_disagreement(std::span<const std::uint64_t> fingerprints) {
  const auto other = std::find_if(fingerprints.begin(), fingerprints.end(),
                                  [&](std::uint64_t value) { return value != fingerprints[0]; });
  return other == fingerprints.end() ? 0 : static_cast<int>(other - fingerprints.begin());
}

void fail_disagreement(int first, const std::string& first_call, int second,
                       const std::string& second_call) {
  fail("ranks disagree: rank {} makes {}, rank {} makes {}", first, first_call, second,
       second_call);
}

void check_counts(int sender, std::int64_t sent, int receiver, std::int64_t expected,
                  const Call& call) {
  check(sent == expected,
        "ranks disagree: rank {} sends {} elements to rank {}, which expects {}, in {}", sender,
        sent, receiver, expected, describe(call));
}

std::string list_ranks(std::span<const int> ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string failure_of(int rank, int ranks, std::string_view reason) {
  return ranks == 1 ? std::string(reason) : fmt::format("rank {}: {}", rank, reason);
}

namespace {

std::int64_t bytes_sent_of(const Tensor& tensor, const Call& call, int rank, int ranks) {
  const auto bytes = static_cast<std::int64_t>(tensor.bytes());
  const std::int64_t share = share_of(tensor.numel(), rank, ranks).count() *
                             static_cast<std::int64_t>(size_of(tensor.dtype()));
  switch (call.collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return share * (ranks - 1);
    case Collective::all_reduce:
      return bytes - share + share * (ranks - 1);
    case Collective::reduce:
      return bytes - share + (rank == call.root ? 0 : share);
    case Collective::broadcast:
      return rank == call.root ? bytes * (ranks - 1) : 0;
    case Collective::shift:
      return call.root == 0 ? 0 : bytes;
    default:
      return 0;
  }
}

/// The part of `tensor` that belongs to `peer`.
Tensor part_of(const Tensor& tensor, const std::vector<std::int64_t>& counts, int peer, int ranks) {
  if (counts.empty()) return share_of(tensor, peer, ranks);
  const std::int64_t begin =
      std::accumulate(counts.begin(), counts.begin() + peer, std::int64_t{0});
  return elements(tensor, {begin, begin + counts[static_cast<std::size_t>(peer)]});
}

}  // namespace

std::int64_t bytes_sent_by(const Call& call, int rank, int ranks) {
  std::int64_t bytes = 0;
  if (!call.sent_counts.empty()) {
    for (int r = 0; r < ranks; ++r) {
      if (r != rank) bytes += static_cast<std::int64_t>(sent_part(call, 0, r, ranks).bytes());
    }
    return bytes;
  }
  for (const Tensor& tensor : call.inputs_or_outputs())
    bytes += bytes_sent_of(tensor, call, rank, ranks);
  return bytes;
}

Tensor elements(const Tensor& tensor, ElementRange range) {
  return tensor.reshape({tensor.numel()}).slice(range.begin, range.end);
}

Tensor share_of(const Tensor& tensor, int rank, int ranks) {
  return elements(tensor, share_of(tensor.numel(), rank, ranks));
}

Tensor sent_part(const Call& call, std::size_t i, int peer, int ranks) {
  return part_of(call.inputs[i], call.sent_counts, peer, ranks);
}

Tensor received_part(const Call& call, std::size_t i, int peer, int ranks) {
  return part_of(call.outputs[i], call.received_counts, peer, ranks);
}

}  // namespace tessera
