// MatrixExchange: whole matrices for an optimizer that has parts of them.
//
// An optimizer such as Muon computes with whole matrices, but a rank's shards may be parts of them.
// Each matrix has one owner among the ranks (sharding/plan/whole_matrices.h). A round trip has three
// parts, of which the optimizer provides the computation:
//
//   write       every rank writes its pieces                      element by element
//   transform   the owner changes the whole matrix in place
//   read        every rank reads its pieces of the result         element by element
//
// A sharding strategy implements it; the optimizer knows nothing of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/tensor.h"

namespace tessera {

/// A rank's piece of one matrix: neighbours in its shard of a parameter.
struct MatrixPiece {
  std::string parameter;
  /// The elements of the shard.
  std::int64_t first = 0, count = 0;
  /// Extents of the whole matrix, as a layer's weight: it has so many outputs and inputs.
  std::int64_t outputs = 0, inputs = 0;
  /// [count], in the dtype of the exchange. In `write` it is undefined if no rank needs the piece.
  Tensor values = {};
};

class MatrixExchange {
 public:
  virtual ~MatrixExchange() = default;

  struct Work {
    std::function<void(const std::vector<MatrixPiece>&)> write;
    std::function<void(const Tensor& matrix)> transform;
    std::function<void(const std::vector<MatrixPiece>&)> read;
  };
  /// Makes the round trip for all matrices, bucket by bucket. The pieces of a bucket are passed to
  /// one call of `write` and, later, of `read`; messages of one bucket travel while the matrices of
  /// another are transformed. A collective: a rank without pieces calls it, too.
  virtual void run(const Work& work) = 0;
};

}  // namespace tessera
