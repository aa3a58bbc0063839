// TensorTraffic: the bytes that tensor-parallel ranks send each other.
//
// They follow from the shapes of a decoder. Each block has two pairs of products: one cut by outputs, then
// one cut by inputs (autograd/operations/divided.h). The second pair may be a mixture's experts.
// docs/tensor_parallelism.md derives the formula. It counts a model with all parameters trained.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/cut.h"
#include "autograd/tensor_axis.h"
#include "runtime/dtype.h"

namespace tessera {

/// The model and the rows of one rank's micro-batch.
struct TensorTraffic {
  std::int64_t rows = 0;  // of tokens
  std::int64_t width = 0;
  /// For each layer, how often its forward pass runs in a micro-batch: twice if backward computes it
  /// again.
  std::vector<int> forward_passes = {};
  /// The same for each layer with experts, which the plan sorts out by its units.
  std::vector<int> mixture_passes = {};
  /// Products of attention that gather its input: one where queries, keys and values are joined.
  int attention_readers = 1;
  struct Experts {
    std::int64_t per_token = 0;
    /// Whether every token takes a shared expert too.
    bool shared = false;
    /// Whether backward makes the dispatched rows again.
    bool dispatches_again = true;
  };
  Experts experts = {};
  /// Norms [width] of a layer, and parameters of one: 2 with a bias.
  std::int64_t layer_norms = 2, norm_vectors = 1;
  /// Elements of the norms of queries' and keys' heads; 0 without.
  std::int64_t head_norms = 0;
  /// The cut of each layer's keys, and of its values, and the channels of a head.
  Cut keys = {};
  std::int64_t head_size = 0;
  /// Whether positions are learned.
  bool learns_positions = false;
  /// How often the head computes the statistics of its rows in a step.
  int head_runs = 1;
  /// Whether the ranks have the embedding, and the head.
  bool embeds = true, has_head = true;
  DType dtype = DType::f32;
  /// Whether the rows that products read have 8 bits.
  bool fp8_rows = false;
  RowExchange row_exchange = RowExchange::together;

  /// Bytes that a rank of `ranks` sends in a micro-batch.
  struct Bytes {
    std::int64_t added = 0;  // by the receivers
    std::int64_t copied = 0;
  };
  Bytes of_micro_batch(int ranks, int rank, int sum_parts, int token_leaves) const;
};

}  // namespace tessera
