// Norms, alone and with a residual sum.
#include "autograd/operations.h"

#include "autograd/activations.h"
#include "autograd/context_axis.h"
#include "autograd/engine.h"
#include "autograd/leaf_sum.h"
#include "autograd/operations/divided.h"
#include "kernels/layer_norm/op.h"
#include "kernels/rms_norm/op.h"
#include "runtime/category.h"

namespace tessera {
namespace {

/// The statistics that layer_norm saves of every row.
struct Moments {
  Tensor mean, rstd;
};

/// One number for every row of x.
Tensor row_statistic(const Tensor& x) {
  return activation({as_rows(x).size(0)}, statistics_dtype(x.dtype()));
}

/// Memory for the sum of x's rows.
Tensor row_total(const Tensor& x) {
  return activation({x.size(-1)}, statistics_dtype(x.dtype()));
}

Tensor ones(std::int64_t count, DType dtype) {
  const CategoryScope category(Category::activations);
  const Tensor exact = Tensor::full({count}, statistics_dtype(dtype), 1.0);
  if (exact.dtype() == dtype) return exact;
  const Tensor rounded = activation({count}, dtype);
  cast(rounded, exact);
  return rounded;
}

/// The tensor for the gradient of a norm's input. It is `received`, the sum that it is added to, if
/// this handle is the only owner of that.
Tensor gradient_sum(const Tensor& received, const Tensor& dy) {
  return received.defined() ? reuse(received) : like(dy);
}

/// A leaf's rows of a tensor [..., C], or its part of the rows' statistics [N].
Tensor leaf_of(const Tensor& x, std::int64_t leaf, std::int64_t leaves) {
  if (leaves == 1 || !x.defined()) return x;
  return rows_of_leaf(x.rank() == 1 ? x : as_rows(x), leaf, leaves);
}

/// The node of y = layer_norm(x).
Variable layer_normed(const Tensor& y, const Variable& x, const Parameter& weight,
                      const Parameter& bias, const Moments& moments) {
  return adding_differentiable(
      y, x, weight.trainable() || bias.trainable(),
      [weight, bias, moments, x = x.data(), total = total_of_gradient(x)](Tensor dy,
                                                                          Tensor received) {
        const Tensor dx = gradient_sum(received, dy);
        Accumulate accumulate = Accumulate::no;
        for (const Parameter& parameter : {weight, bias}) {
          if (parameter.trainable()) accumulate = parameter.next_contribution();
        }
        const std::int64_t leaves = row_leaves(weight.tensor_axis());
        RowSum of_weight(weight, accumulate), of_bias(bias, accumulate);
        const bool sums_rows = total != nullptr && leaves == 1;
        const Tensor dx_total = sums_rows ? row_total(dx) : Tensor();
        for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
          const auto of = [&](const Tensor& rows) { return leaf_of(rows, leaf, leaves); };
          add_layer_norm_backward(of(dx), dx_total, of_weight.next(), of_bias.next(), of(dy),
                                  of(received), of(x), weight.data(), of(moments.mean),
                                  of(moments.rstd), of_weight.accumulate());
          of_weight.added();
          of_bias.added();
        }
        of_weight.finish();
        of_bias.finish();
        if (sums_rows) *total = dx_total;
        return dx;
      });
}

/// The node of y = rms_norm(x).
Variable rms_normed(const Tensor& y, const Variable& x, const Parameter& weight, const Tensor& rstd,
                    float offset) {
  return adding_differentiable(
      y, x, weight.trainable(), [weight, rstd, offset, x = x.data()](Tensor dy, Tensor received) {
        const Tensor dx = gradient_sum(received, dy);
        const std::int64_t leaves = row_leaves(weight.tensor_axis());
        RowSum sum(weight, weight.trainable() ? weight.next_contribution() : Accumulate::no);
        for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
          const auto of = [&](const Tensor& rows) { return leaf_of(rows, leaf, leaves); };
          add_rms_norm_backward(of(dx), sum.next(), of(dy), of(received), of(x), weight.data(),
                                of(rstd), sum.accumulate(), offset);
          sum.added();
        }
        sum.finish();
        return dx;
      });
}

}  // namespace

Variable layer_norm(const Variable& x, const Parameter& weight, const Parameter& bias,
                    float epsilon) {
  const Tensor y = like(x.data());
  const Moments moments{row_statistic(y), row_statistic(y)};
  layer_norm_forward(y, moments.mean, moments.rstd, x.data(), weight.data(), bias.data(), epsilon);
  return layer_normed(y, x, weight, bias, moments);
}

Variable rms_norm(const Variable& x, const Parameter& weight, float epsilon, float offset) {
  const Tensor y = like(x.data());
  const Tensor rstd = row_statistic(y);
  rms_norm_forward(y, rstd, x.data(), weight.data(), epsilon, offset);
  return rms_normed(y, x, weight, rstd, offset);
}

Variable rms_norm(const Variable& x, float epsilon) {
  const Tensor y = like(x.data());
  const Tensor rstd = row_statistic(y);
  // The kernels multiply by a weight; a product with 1 is exact.
  const Tensor weight = ones(x.shape()[-1], x.dtype());
  rms_norm_forward(y, rstd, x.data(), weight, epsilon);
  return adding_differentiable(
      y, x, false, [weight, rstd, x = x.data()](Tensor dy, Tensor received) {
        const Tensor dx = gradient_sum(received, dy);
        add_rms_norm_backward(dx, {}, dy, received, x, weight, rstd, Accumulate::no);
        return dx;
      });
}

SumAndNorm add_layer_norm(const Variable& x, Variable branch, const Parameter& weight,
                          const Parameter& bias, float epsilon) {
  const Tensor sum = branch.is_last() ? branch.data() : like(x.data());
  const Tensor y = like(sum);
  const Moments moments{row_statistic(y), row_statistic(y)};
  add_layer_norm_forward(y, sum, moments.mean, moments.rstd, x.data(), branch.data(), weight.data(),
                         bias.data(), epsilon);
  const Variable total = added(sum, x, branch);
  return {total, layer_normed(y, total, weight, bias, moments)};
}

SumAndNorm add_rms_norm(const Variable& x, Variable branch, const Parameter& weight, float epsilon,
                        float offset) {
  const Tensor sum = branch.is_last() ? branch.data() : like(x.data());
  const Tensor y = like(sum);
  const Tensor rstd = row_statistic(y);
  add_rms_norm_forward(y, sum, rstd, x.data(), branch.data(), weight.data(), epsilon, offset);
  const Variable total = added(sum, x, branch);
  return {total, rms_normed(y, total, weight, rstd, offset)};
}

}  // namespace tessera
