#include "autograd/leaf_sum.h"

#include <utility>

#include "kernels/add/op.h"
#include "runtime/category.h"

namespace tessera {

LeafSum::LeafSum(Tensor window, Accumulate accumulate, std::int64_t leaves)
    : window_(std::move(window)), accumulate_(accumulate), leaves_(leaves) {}

const Tensor& LeafSum::next() {
  if (leaves_ == 1 || !window_.defined()) return window_;
  const CategoryScope category(Category::workspace);
  next_ = Tensor::empty(window_.shape(), window_.dtype());
  return next_;
}

void LeafSum::added() {
  ++count_;
  if (!next_.defined()) return;  // the window has been written, or none is wanted
  // As a binary counter carries: two sums of equally many leaves become one.
  for (std::int64_t bits = count_; bits % 2 == 0; bits /= 2) {
    tessera::add(next_, sums_.back(), next_);
    sums_.pop_back();
  }
  if (count_ < leaves_) {
    sums_.push_back(std::exchange(next_, {}));
  } else if (accumulate_ == Accumulate::yes) {
    tessera::add(window_, window_, std::exchange(next_, {}));
  } else {
    window_.copy_from(std::exchange(next_, {}));
  }
}

void LeafSum::add(Tensor gradient) {
  next_ = std::move(gradient);
  added();
}

Tensor rows_of_leaf(const Tensor& rows, std::int64_t leaf, std::int64_t leaves) {
  if (leaves == 1 || !rows.defined()) return rows;
  const std::int64_t count = rows.size(0);
  return rows.slice(leaf * count / leaves, (leaf + 1) * count / leaves);
}

}  // namespace tessera
