// Call: one collective as one rank makes it.
//
// Every communicator uses these functions to share out elements, to compare the ranks' calls and
// to report a difference.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tree_reduce/op.h"
#include "runtime/enum_names.h"
#include "runtime/tensor.h"
#include "sharding/share.h"

namespace tessera {

enum class Collective {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  reduce,
  all_to_all,
  shift,
  barrier,
  split,
};
inline constexpr int kCollectives = 9;
template <>
inline constexpr EnumNames<Collective> kEnumNames<Collective> = {
    "collective",
    {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all", "shift",
     "barrier", "split"}};
inline std::string_view name_of(Collective collective) {
  return enum_name(collective);
}

using Tensors = std::vector<Tensor>;

struct Call {
  Collective collective = Collective::barrier;
  Tensors outputs;
  Tensors inputs;  // empty if the outputs are used in place
  int root = 0;    // for shift: the distance; for split: the color
  Reduction reduction = Reduction::sum;
  std::string label;
  /// all_to_all of unequal parts: the elements for each rank, and from each rank. Empty if parts
  /// are equal.
  std::vector<std::int64_t> sent_counts = {};
  std::vector<std::int64_t> received_counts = {};
  /// The number of the call among those of its communicator, counted from 0.
  std::uint64_t number = 0;
  /// Whether the ranks compare this call before they exchange anything.
  bool compared = true;

  /// The tensors that this rank contributes: the inputs, or the outputs if these are used in
  /// place.
  const Tensors& inputs_or_outputs() const { return inputs.empty() ? outputs : inputs; }
};

/// "call 3, all_reduce of 16 bytes in 1 tensor, for h.0", where 3 is the call's number.
std::string describe(const Call& call);

/// A 64-bit hash of everything that ranks must agree on: number, collective, label, root,
/// reduction, dtypes and counts of the tensors. Colors of a split and unequal parts may differ.
std::uint64_t fingerprint(const Call& call);

/// The first rank with another fingerprint than rank 0, or 0 if all are the same. Every rank looks
/// at all fingerprints, so all reach the same verdict.
int first_disagreement(std::span<const std::uint64_t> fingerprints);

/// Raises Error about two ranks, with their numbers and the descriptions of their calls.
[[noreturn]] void fail_disagreement(int first, const std::string& first_call, int second,
                                    const std::string& second_call);

/// Raises Error unless rank `sender` sends as many elements to rank `receiver` as the receiver
/// expects.
void check_counts(int sender, std::int64_t sent, int receiver, std::int64_t expected,
                  const Call& call);

/// "rank 2" or "ranks 1, 3".
std::string list_ranks(std::span<const int> ranks);

/// The message about a failure: "rank 1: out of memory", or the reason alone if there is only one
/// rank.
std::string failure_of(int rank, int ranks, std::string_view reason);

/// Bytes that other ranks receive from this one in a call, by the formulas of
/// docs/communicators.md, "Bytes sent".
std::int64_t bytes_sent_by(const Call& call, int rank, int ranks);

/// These elements as a tensor of one dimension.
Tensor elements(const Tensor& tensor, ElementRange range);

/// The elements that `rank` of `ranks` ranks owns, as a tensor of one dimension.
Tensor share_of(const Tensor& tensor, int rank, int ranks);

/// The part of input i of an all_to_all that `peer` receives.
Tensor sent_part(const Call& call, std::size_t i, int peer, int ranks);
/// The part of output i that `peer` sent.
Tensor received_part(const Call& call, std::size_t i, int peer, int ranks);

}  // namespace tessera
