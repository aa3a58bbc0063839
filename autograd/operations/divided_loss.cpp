#include "autograd/operations/divided_loss.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/activations.h"
#include "autograd/operations/divided.h"
#include "kernels/linear_cross_entropy/options.h"
#include "kernels/vocabulary_cross_entropy/op.h"
#include "runtime/category.h"
#include "runtime/integer.h"

namespace tessera {
namespace {

/// Some of this rank's rows of the head's weight: the classes of one part of all sums.
struct Classes {
  std::int64_t first_class = 0;
  std::int64_t first_row = 0, count = 0;
};

/// A part per part of a divided sum. The last ones may be short or empty.
std::vector<Classes> classes_of(const Parameter& weight) {
  const TensorAxis& axis = *weight.tensor_axis();
  const std::int64_t all = weight.shape()[0], each = ceil_div(all, std::int64_t{axis.sum_parts()});
  std::vector<Classes> parts;
  for (std::int64_t i = 0; i < axis.own_parts(); ++i) {
    const std::int64_t first = (axis.rank() * axis.own_parts() + i) * each;
    parts.push_back({.first_class = first,
                     .first_row = i * each,
                     .count = std::clamp<std::int64_t>(all - first, 0, each)});
  }
  return parts;
}

Tensor workspace(const Shape& shape, DType dtype) {
  const CategoryScope category(Category::workspace);
  return Tensor::empty(shape, dtype);
}

/// The head on this rank, for all rows.
class Head {
 public:
  Head(const Parameter& weight, double loss_scale, int ignore_index)
      : axis_(weight.tensor_axis()),
        weight_(weight.data()),
        classes_(classes_of(weight)),
        loss_scale_(loss_scale),
        ignore_index_(ignore_index) {}

  /// The logits of rows x [n, C] for the classes of each part, f32 (f64).
  std::vector<Tensor> logits(const Tensor& x) const {
    std::vector<Tensor> logits;
    for (const Classes& part : classes_) {
      logits.push_back(workspace({x.size(0), part.count}, statistics_dtype(x.dtype())));
      if (part.count > 0) {
        matmul(logits.back(), x, rows_of(weight_, part), Transpose::no, Transpose::yes);
      }
    }
    return logits;
  }

  /// The statistics [n, 3] of the rows for all classes. A collective.
  Tensor statistics(const std::vector<Tensor>& logits, const Targets& targets) const {
    const std::int64_t n = targets.rows();
    const DType dtype = logits.front().dtype();
    const Tensor parts = workspace({std::ssize(classes_), n, 3}, dtype);
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const Tensor part = parts.slice(at, at + 1);
      if (classes_[i].count == 0) {
        leave_out(part);
      } else {
        vocabulary_statistics(part, logits[i], targets, classes_[i].first_class, 1, ignore_index_);
      }
    }
    const Tensor ranks = workspace({axis_->ranks(), n, 3}, dtype);
    const Tensor own = ranks.slice(axis_->rank(), axis_->rank() + 1).reshape({n, 3});
    combine_statistics(own, parts);
    if (axis_->ranks() == 1) return own;
    axis_->all_gather(ranks);
    const Tensor all = workspace({n, 3}, dtype);
    combine_statistics(all, ranks);
    return all;
  }

  void loss(Out loss, const Tensor& statistics, const Targets& targets) const {
    vocabulary_loss(loss, statistics, targets, loss_scale_, ignore_index_);
  }

  /// Turns each part's logits into their gradients, in the dtype of the weight.
  void differentiate(std::vector<Tensor>& logits, const Tensor& statistics, const Targets& targets,
                     const Tensor& factors) const {
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      if (classes_[i].count == 0) continue;
      vocabulary_gradient(logits[i], logits[i], statistics, targets, classes_[i].first_class,
                          loss_scale_, ignore_index_, factors);
      if (logits[i].dtype() == weight_.dtype() || weight_.dtype() == DType::f64) continue;
      const Tensor rounded = workspace(logits[i].shape(), weight_.dtype());
      cast(rounded, logits[i]);
      logits[i] = rounded;
    }
  }

  /// dx [n, C] f32 = the sum over this rank's parts of dlogits weight.
  void input_gradient(const Tensor& dx, const std::vector<Tensor>& dlogits) const {
    LeafSum sum(dx, Accumulate::no, std::ssize(classes_));
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      if (classes_[i].count == 0) {
        sum.next().zero();
      } else {
        matmul(sum.next(), dlogits[i], rows_of(weight_, classes_[i]));
      }
      sum.added();
    }
  }

  /// Adds dlogits^T x to the rank's gradient, or overwrites it.
  void weight_gradient(const Tensor& gradient, const std::vector<Tensor>& dlogits, const Tensor& x,
                       Accumulate accumulate) const {
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      const Classes& part = classes_[i];
      if (part.count == 0) continue;
      matmul(rows_of(gradient, part), dlogits[i], x, Transpose::yes, Transpose::no, accumulate);
    }
    std::int64_t rows = 0;
    for (const Classes& part : classes_) rows += part.count;
    // Behind the last class there is padding.
    if (accumulate == Accumulate::no) gradient.slice(rows, gradient.size(0)).zero();
  }

 private:
  static Tensor rows_of(const Tensor& matrix, const Classes& part) {
    return matrix.slice(part.first_row, part.first_row + part.count);
  }
  /// The statistics [1, n, 3] of no class: a maximum below all logits.
  static void leave_out(const Tensor& statistics) {
    const CategoryScope category(Category::workspace);
    const std::int64_t n = statistics.size(1);
    std::vector<float> rows;
    for (std::int64_t i = 0; i < n; ++i) rows.insert(rows.end(), {-1e30f, 0.0f, 0.0f});
    const Tensor values = Tensor::from(rows, {1, n, 3});
    if (statistics.dtype() == DType::f32) {
      statistics.copy_from(values);
    } else {
      cast(statistics, values);
    }
  }

  const SharedAxis axis_;
  const Tensor weight_;
  const std::vector<Classes> classes_;
  const double loss_scale_;
  const int ignore_index_;
};

}  // namespace

void divided_cross_entropy(Out loss, const HeadGradients& gradients, const Tensor& x,
                           const Parameter& weight, const Targets& targets, double loss_scale,
                           int ignore_index, std::int64_t chunk, const Tensor& factors) {
  const Head head(weight, loss_scale, ignore_index);
  const bool by_rows = loss.shape() == Shape{targets.rows()};
  const Tensor of_chunk = activation({1}, loss.dtype());
  chunk = rows_of_chunk(chunk, x.device());
  Accumulate accumulate = gradients.accumulate;
  for (std::int64_t first = 0; first < x.size(0); first += chunk) {
    const std::int64_t last = std::min(x.size(0), first + chunk);
    const Tensor rows = x.slice(first, last);
    const Targets targets_of = targets.slice(first, last);
    std::vector<Tensor> logits = head.logits(rows);
    const Tensor statistics = head.statistics(logits, targets_of);
    const Tensor whole = first == 0 ? loss : of_chunk;
    head.loss(by_rows ? loss.slice(first, last) : whole, statistics, targets_of);
    if (first > 0 && !by_rows) add(loss, loss, of_chunk);
    if (!gradients.dx.defined() && !gradients.dweight.defined()) continue;
    head.differentiate(logits, statistics, targets_of,
                       factors.defined() ? factors.slice(first, last) : factors);
    if (gradients.dx.defined()) head.input_gradient(gradients.dx.slice(first, last), logits);
    if (gradients.dweight.defined()) {
      head.weight_gradient(gradients.dweight, logits, rows, accumulate);
    }
    accumulate = Accumulate::yes;
  }
}

}  // namespace tessera
