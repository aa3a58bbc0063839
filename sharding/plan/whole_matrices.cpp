#include "sharding/plan/whole_matrices.h"

#include <algorithm>
#include <numeric>

#include "kernels/newton_schulz/op.h"
#include "runtime/check.h"
#include "sharding/plan/plan.h"

namespace tessera {
namespace {

bool holds_whole(const GroupPlan& group) {
  return group.placement.layout == Layout::whole;
}

const Parameter& parameter_of(const GroupPlan& group, const WholeMatrix& matrix) {
  return group.buckets()[matrix.bucket].parameters[matrix.parameter];
}

bool is_divided(const GroupPlan& group, const WholeMatrix& matrix) {
  return group.matrices.tensors > 1 && is_divided(parameter_of(group, matrix), group.cut);
}

double cost_of(const WholeMatrix& matrix) {
  return newton_schulz_flops(matrix.rows, matrix.columns);
}

/// The matrices of a bucket, without owners.
std::vector<WholeMatrix> matrices_of(const GroupPlan& group, int b, bool has_tensors,
                                     const ShardingOptions& options) {
  std::vector<WholeMatrix> matrices;
  const BucketLayout& bucket = group.buckets()[b];
  const bool in_pieces =
      group.placement.layout == Layout::rows || group.placement.layout == Layout::flat;
  for (int p = 0; p < bucket.trained_count; ++p) {
    const Parameter& parameter = bucket.parameters[p];
    const std::optional<DType> dtype = options.matrix_dtype(parameter);
    if (!dtype) continue;
    const Shape& shape = parameter.shape();
    const int rank = parameter.stacked() ? 3 : 2;
    check(shape.rank() == rank,
          "parameter '{}' has the shape {}; only matrices and stacks of matrices can be "
          "orthogonalized",
          parameter.name(), to_string(shape));
    const std::int64_t count = parameter.stacked() ? bucket.shapes[p][0] : 1;
    for (std::int64_t i = 0; i < count; ++i) {
      matrices.push_back({.bucket = b,
                          .parameter = p,
                          .index = i,
                          .rows = shape[rank - 2],
                          .columns = shape[rank - 1],
                          .dtype = *dtype,
                          .is_cut = (in_pieces && group.shards > 1) ||
                                    (has_tensors && tessera::is_divided(parameter, group.cut))});
    }
  }
  return matrices;
}

}  // namespace

MatrixPlan plan_matrices(const GroupPlan& group, const Mesh& mesh, const ShardingOptions& options) {
  MatrixPlan plan;
  if (!options.matrix_dtype) return plan;
  const Placement& placement = group.placement;
  plan.axes = holds_whole(group) ? placement.replicate : placement.shard;
  if (mesh.has("tensor")) {
    plan.axes.push_back("tensor");
    plan.tensors = mesh.size_along({"tensor"});
  }
  plan.ranks = mesh.size_along(plan.axes);
  std::vector<double> work(static_cast<std::size_t>(plan.ranks));
  for (int b = 0; b < group.bucket_count(); ++b) {
    std::vector<WholeMatrix> matrices = matrices_of(group, b, plan.tensors > 1, options);
    std::vector<std::size_t> order(matrices.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
      return cost_of(matrices[i]) > cost_of(matrices[j]);
    });
    for (const std::size_t i : order) {
      WholeMatrix& matrix = matrices[i];
      int first = 0, last = plan.ranks;
      if (placement.layout == Layout::tensors) {
        while (group.partition.owned(b, matrix.parameter, first / plan.tensors).count == 0) {
          first += plan.tensors;
        }
        last = first + plan.tensors;
      }
      matrix.owner = static_cast<int>(std::min_element(work.begin() + first, work.begin() + last) -
                                      work.begin());
      work[static_cast<std::size_t>(matrix.owner)] += cost_of(matrix);
    }
    plan.matrices.insert(plan.matrices.end(), matrices.begin(), matrices.end());
  }
  return plan;
}

MatrixPart part_of(const GroupPlan& group, const WholeMatrix& matrix, int rank) {
  const int tensors = group.matrices.tensors;
  const HeldPart held = held_part(parameter_of(group, matrix), group.cut, 0, rank % tensors);
  const std::int64_t stacked =
      matrix.numel() == 0 || !parameter_of(group, matrix).stacked() ? 1 : held.shape[0];
  const std::int64_t elements = held.shape.numel() / stacked;  // of the matrix's held part
  const Range owned = holds_whole(group)
                          ? Range{0, held.shape.numel()}
                          : group.partition.owned(matrix.bucket, matrix.parameter, rank / tensors);
  const std::int64_t begin = std::max(owned.first, matrix.index * elements);
  const std::int64_t end =
      std::min({owned.end(), (matrix.index + 1) * elements, std::max(held.count, begin)});
  MatrixPart part{.first = begin, .count = std::max<std::int64_t>(0, end - begin)};
  part.elements = held.elements.from(begin);
  part.elements.first -= matrix.index * matrix.numel();
  return part;
}

bool sends_part(const GroupPlan& group, const WholeMatrix& matrix, int rank) {
  const int tensors = group.matrices.tensors;
  if (rank == matrix.owner) return false;
  if (holds_whole(group) && rank / tensors != matrix.owner / tensors) return false;
  return is_divided(group, matrix) || rank % tensors == matrix.owner % tensors;
}

std::int64_t matrix_bytes_sent(const GroupPlan& group, int rank) {
  const MatrixPlan& plan = group.matrices;
  std::int64_t bytes = 0;
  for (const WholeMatrix& matrix : plan.matrices) {
    const auto size = static_cast<std::int64_t>(size_of(matrix.dtype));
    const std::int64_t own = part_of(group, matrix, rank).count;
    if (rank == matrix.owner) {
      // Copies of the matrix that the ranks have together.
      const int replicas = holds_whole(group) ? plan.ranks / plan.tensors : 1;
      const int copies = replicas * (is_divided(group, matrix) ? 1 : plan.tensors);
      bytes += size * (copies * matrix.numel() - own);
    } else if (sends_part(group, matrix, rank)) {
      bytes += size * own;
    }
  }
  return bytes;
}

std::vector<double> matrix_flops(const MatrixPlan& plan) {
  std::vector<double> flops(static_cast<std::size_t>(plan.ranks));
  for (const WholeMatrix& matrix : plan.matrices) {
    flops[static_cast<std::size_t>(matrix.owner)] += cost_of(matrix);
  }
  return flops;
}

}  // namespace tessera
