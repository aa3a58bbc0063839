// Call: one collective as a rank makes it, and what every communicator does with it in the same
// way: sharing out elements, comparing calls and telling a difference.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tree_reduce/op.h"
#include "runtime/tensor.h"

namespace tessera {

enum class Collective {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  reduce,
  all_to_all,
  barrier,
  split,
};
inline constexpr int kCollectives = 8;

std::string_view name_of(Collective collective);

using Tensors = std::vector<Tensor>;

struct Call {
  Collective collective = Collective::barrier;
  Tensors outputs;
  Tensors inputs;  // empty where the outputs are used in place
  int root = 0;    // of split: the color
  Reduction reduction = Reduction::sum;
  std::string label;

  /// What this rank brings: the inputs, or the outputs where these are used in place.
  const Tensors& brought() const { return inputs.empty() ? outputs : inputs; }
};

/// "call 3, all_reduce of 16 bytes in 1 tensor, for h.0", where 3 is `number`.
std::string describe(const Call& call, std::uint64_t number);

/// 64 bits (FNV-1a) over all that ranks must agree on: number, collective, label, root, reduction,
/// dtypes and counts of the tensors. Colors of a split may differ.
std::uint64_t fingerprint(const Call& call, std::uint64_t number);

/// The first rank whose fingerprint is not rank 0's, or 0 if all are the same. Every rank looks at
/// all fingerprints, so all come to the same verdict.
int first_disagreement(std::span<const std::uint64_t> fingerprints);

/// Raises Error about two ranks, by their names and what describe() says of their calls.
[[noreturn]] void fail_disagreement(int first, const std::string& first_call, int second,
                                    const std::string& second_call);

/// "s 1, 3" or " 2": the end of a sentence about one rank or several.
std::string list_of_ranks(std::span<const int> ranks);

/// What is told of a failure: "rank 1: out of memory", or the reason alone if there is but one
/// rank.
std::string failure_of(int rank, int ranks, std::string_view reason);

/// Elements [begin, end) of a tensor, counted flat.
struct ElementRange {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t count() const { return end - begin; }
};

/// What of `count` elements falls to `rank` when `ranks` ranks share them: contiguous, in rank
/// order, equal to within one element.
inline ElementRange share_of(std::int64_t count, int rank, int ranks) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

/// Bytes that other ranks receive from this one in a call: those of docs/communicators.md, "Bytes
/// sent".
std::int64_t bytes_sent_by(const Call& call, int rank, int ranks);

/// These elements as a tensor of one dimension, whatever the tensor's shape.
Tensor elements(const Tensor& tensor, ElementRange range);

}  // namespace tessera
