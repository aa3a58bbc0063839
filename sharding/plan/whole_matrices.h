// Whole matrices: the rank that computes with each matrix as a whole when the masters are updated.
//
// An optimizer such as Muon needs a matrix whole, while ranks own parts of it. Each matrix has one owner
// among the ranks that hold its parts. The others send their parts to it, and it sends the result back
// (sharding/strategy/matrix_exchange.h):
//
//   layout     ranks                parts to the owner     results
//   whole      the replicas         none                   whole, to every other rank
//   tensors    the shards           none                   none: the owner of the tensor owns it
//   rows       the shards           each rank's slice      each rank's slice
//   flat       the shards           each rank's elements   each rank's elements
//
// Replicas of sharded parameters do the same work. Tensor-parallel ranks belong to the ranks of every
// row: of a parameter that they share out, all of them have parts. Of one that they hold whole, those
// with the owner's place send theirs, and all get the result.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/elements.h"
#include "runtime/shape.h"
#include "sharding/plan/mesh.h"
#include "sharding/plan/options.h"

namespace tessera {

struct GroupPlan;

/// A trained parameter of two dimensions, or one of the experts of a stack.
struct WholeMatrix {
  int bucket = 0;
  int parameter = 0;
  /// Among the experts that a rank holds of a stack.
  std::int64_t index = 0;
  std::int64_t rows = 0, columns = 0;
  /// Parts and results travel in it.
  DType dtype = DType::f32;
  /// Whether ranks have pieces of it: their parts travel to the owner.
  bool is_cut = false;
  /// The owner's place among the ranks along MatrixPlan::axes.
  int owner = 0;

  std::int64_t numel() const { return rows * columns; }
};

/// The matrices of a group, bucket by bucket.
struct MatrixPlan {
  /// The axes of the ranks that exchange parts, and their number.
  Axes axes;
  int ranks = 1;
  /// Those along the axis "tensor", which is the last.
  int tensors = 1;
  std::vector<WholeMatrix> matrices;
};

/// Owners are chosen matrix by matrix: the longest computation of a bucket first, to the rank that has
/// least to compute so far. Raises Error if options.matrix_dtype names a parameter that is no matrix.
MatrixPlan plan_matrices(const GroupPlan& group, const Mesh& mesh, const ShardingOptions& options);

/// The part that a rank has of a matrix.
struct MatrixPart {
  /// Elements [first, first + count) of the rank's held part of the parameter.
  std::int64_t first = 0, count = 0;
  /// Their places in the matrix.
  Elements elements;
};

/// `rank` is a place along MatrixPlan::axes.
MatrixPart part_of(const GroupPlan& group, const WholeMatrix& matrix, int rank);
/// Whether the rank sends its part to the owner, which is another rank.
bool sends_part(const GroupPlan& group, const WholeMatrix& matrix, int rank);

/// Bytes that `rank` sends in a step: parts to owners, and results of its own matrices.
std::int64_t matrix_bytes_sent(const GroupPlan& group, int rank);
/// The operations of each rank's products in a step (kernels/newton_schulz/op.h).
std::vector<double> matrix_flops(const MatrixPlan& plan);

}  // namespace tessera
