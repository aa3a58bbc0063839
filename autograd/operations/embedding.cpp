// Embeddings: rows of a table.
#include "autograd/operations.h"

#include <vector>

#include "autograd/activations.h"
#include "autograd/context_axis.h"
#include "autograd/leaf_sum.h"
#include "autograd/operations/divided.h"
#include "kernels/embedding/op.h"

namespace tessera {
namespace {

/// Adds to a table's gradient. Leaves that the head has left, where it has the same weight, are added to
/// first: a leaf's gradient is that of both uses.
void embedding_gradient(const Parameter& table, const Tensor& dy, const Tensor& ids,
                        std::optional<std::int64_t> padding_id, const TablePart& part) {
  const std::vector<Tensor> begun = table.take_leaf_gradients();
  const std::int64_t leaves = token_leaves();
  LeafSum sum(table.gradient(), table.next_contribution(), leaves);
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
    const Tensor dy_of = rows_of_leaf(dy, leaf, leaves), ids_of = rows_of_leaf(ids, leaf, leaves);
    if (begun.empty()) {
      embedding_backward(sum.next(), dy_of, ids_of, sum.accumulate(), padding_id, part);
      sum.added();
    } else {
      const Tensor& of_leaf = begun[static_cast<std::size_t>(leaf)];
      embedding_backward(of_leaf, dy_of, ids_of, Accumulate::yes, padding_id, part);
      sum.add(of_leaf);
    }
  }
}

/// Rows of a table. Ranks share out its vocabulary, or every rank has all of it.
class Lookup {
 public:
  Lookup(const Tensor& ids, const Parameter& table)
      : ids_(ids.reshape({ids.numel()})), table_(table), axis_(table.tensor_axis()) {
    if (!divides()) return;
    part_ = {.first = axis_->rank() * table.held_shape()[0], .all = table.shape()[0]};
  }

  bool divides() const {
    return axis_ != nullptr && axis_->ranks() > 1 && table_.cut().divided == Divided::vocabulary;
  }

  /// The rows that this rank has of the result.
  Tensor forward() const {
    const std::int64_t channels = table_.shape()[1];
    const DType dtype = table_.data().dtype();
    const Tensor ids = divides() ? ids_ : own_rows(axis_, ids_);
    const Tensor y = activation({ids.numel(), channels}, dtype);
    embedding_forward(y, table_.data(), ids, part_);
    // One rank has a token's row, and the others add zeros: exact in every dtype.
    return divides() ? scatter_sums(axis_, y) : y;
  }

  void backward(const Tensor& dy, std::optional<std::int64_t> padding_id) const {
    embedding_gradient(table_, whole_rows(axis_, dy), ids_, padding_id, part_);
  }

 private:
  Tensor ids_;
  Parameter table_;
  SharedAxis axis_;
  TablePart part_;
};

}  // namespace

Variable embedding(const Tensor& ids, const Parameter& table,
                   std::optional<std::int64_t> padding_id) {
  const Lookup lookup(ids, table);
  const Tensor y = lookup.forward();
  std::vector<std::int64_t> extents(ids.shape().begin(), ids.shape().end());
  extents.push_back(table.shape()[1]);
  const bool all = y.size(0) == ids.numel();
  return differentiable(all ? y.reshape(Shape(extents)) : y, {}, table.trainable(),
                        [lookup, padding_id](Tensor dy) -> Gradients {
                          lookup.backward(as_rows(dy), padding_id);
                          return {};
                        });
}

}  // namespace tessera
