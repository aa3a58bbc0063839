#include "autograd/operations/shared_pieces.h"

#include <utility>
#include <vector>

#include "autograd/activations.h"
#include "autograd/engine.h"
#include "autograd/tensor_axis.h"
#include "kernels/columns/op.h"
#include "kernels/tree_reduce/op.h"

namespace tessera {
namespace {

bool is_shared(const HeldPieces& held) {
  return held.sharers > 1 || held.copies > 1;
}

/// A share of a piece: columns of y on the rank that computes it, and columns of all its copies.
struct Share {
  std::int64_t sharer = 0;
  std::int64_t first = 0;  // behind the layers that share nothing, in a sharer's columns
  std::int64_t width = 0;
  std::vector<std::int64_t> copies;  // their first columns in the result
};

/// Where the columns of a rank's product are in the result with whole pieces.
class PieceColumns {
 public:
  explicit PieceColumns(const JoinedParameters& weights)
      : axis_(weights.parts().front().tensor_axis()) {
    for (const Parameter& weight : weights.parts()) add(weight);
  }

  bool shares() const { return !shares_.empty(); }

  Tensor forward(const Tensor& y) const {
    const std::int64_t rows = y.size(0);
    const Tensor result = activation({rows, result_width_}, y.dtype());
    copy({result, 0, first_}, {y, 0, first_});
    const Tensor gathered = activation({sharers_ * rows, width_}, y.dtype());
    copy_columns(of_sharer(gathered, axis_->rank() % sharers_), {y, first_, width_});
    if (sharers_ > 1) axis_->sharers(sharers_).all_gather(gathered);
    for (const Share& share : shares_) {
      const Columns from = {of_sharer(gathered, share.sharer), share.first, share.width};
      for (const std::int64_t column : share.copies) copy({result, column, share.width}, from);
    }
    return result;
  }

  Tensor backward(const Tensor& dy) const {
    const std::int64_t rows = dy.size(0);
    const Tensor dx = activation({rows, first_ + width_}, dy.dtype());
    copy({dx, 0, first_}, {dy, 0, first_});
    const DType wide = statistics_dtype(dy.dtype());
    const Tensor sums = activation({sharers_ * rows, width_}, wide);
    for (const Share& share : shares_) {
      std::vector<Tensor> copies;
      for (const std::int64_t column : share.copies) {
        copies.push_back(activation({rows, share.width}, dy.dtype()));
        copy_columns(copies.back(), {dy, column, share.width});
      }
      const Tensor sum = activation({rows, share.width}, wide);
      tree_reduce(sum, copies, Reduction::sum);
      set_columns({of_sharer(sums, share.sharer), share.first, share.width}, sum);
    }
    Tensor own = sums;
    if (sharers_ > 1) {
      own = activation({rows, width_}, wide);
      axis_->sharers(sharers_).reduce_scatter(own, sums);
    }
    set_columns({dx, first_, width_}, own);
    return dx;
  }

 private:
  void add(const Parameter& weight) {
    const HeldPieces held = held_pieces_of(weight);
    const std::int64_t channels = weight.held_shape()[weight.cut().dimension];
    if (!is_shared(held)) {
      first_ += channels;
      result_width_ += channels;
      return;
    }
    sharers_ = held.sharers;
    const std::int64_t width = channels / held.pieces, piece = width * held.sharers;
    for (std::int64_t i = 0; i < held.pieces; ++i) {
      for (std::int64_t sharer = 0; sharer < held.sharers; ++sharer) {
        Share share = {.sharer = sharer, .first = width_ + i * width, .width = width, .copies = {}};
        for (std::int64_t copy = 0; copy < held.copies; ++copy) {
          share.copies.push_back(result_width_ + (i * held.copies + copy) * piece + sharer * width);
        }
        shares_.push_back(std::move(share));
      }
    }
    width_ += channels;
    result_width_ += held.pieces * held.copies * piece;
  }

  Tensor of_sharer(const Tensor& parts, std::int64_t sharer) const {
    const std::int64_t rows = parts.size(0) / sharers_;
    return parts.slice(sharer * rows, (sharer + 1) * rows);
  }
  static void copy(const Columns& to, const Columns& from) {
    if (to.count == 0) return;
    const Tensor columns = activation({from.tensor.size(0), from.count}, from.tensor.dtype());
    copy_columns(columns, from);
    set_columns(to, columns);
  }

  const std::shared_ptr<TensorAxis> axis_;
  std::int64_t sharers_ = 1;
  std::int64_t first_ = 0;  // columns of layers that share nothing
  std::int64_t width_ = 0;  // columns of the others, in the rank's product
  std::int64_t result_width_ = 0;
  std::vector<Share> shares_;
};

}  // namespace

HeldPieces held_pieces_of(const Parameter& weight) {
  const std::shared_ptr<TensorAxis>& axis = weight.tensor_axis();
  if (axis == nullptr) return held_pieces(weight.cut(), 1, 1);
  return held_pieces(weight.cut(), axis->ranks(), axis->own_parts());
}

Variable whole_pieces(Variable y, const JoinedParameters& weights) {
  const PieceColumns columns(weights);
  if (!columns.shares()) return y;
  const Tensor result = columns.forward(as_rows(y.data()));
  const Shape own = y.shape();
  return differentiable(result.reshape(own.with(-1, result.size(1))), {std::move(y)}, false,
                        [columns, own](const Tensor& dy) -> Gradients {
                          return {columns.backward(as_rows(dy)).reshape(own)};
                        });
}

}  // namespace tessera
