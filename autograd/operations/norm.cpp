// Norms, alone and with a residual sum.
#include "autograd/operations.h"

#include <vector>

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

/// A parameter's gradient window, or no tensor if it is frozen.
Tensor wanted_gradient(const Parameter& parameter) {
  return parameter.trainable() ? parameter.gradient() : Tensor();
}

/// The statistics that layer_norm saves of every row.
struct Moments {
  Tensor mean, rstd;
};

/// One number for every row of x.
Tensor row_statistic(const Tensor& x) {
  return activation({as_rows(x).size(0)}, statistics_dtype(x.dtype()));
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

/// Whether ranks share out the rows of a norm, and with them the sums of its weights' gradients.
bool divides_rows(const Parameter& weight) {
  const Axis& axis = weight.tensor_axis();
  return weight.trainable() && axis != nullptr && axis->shares_rows() && axis->sum_parts() > 1;
}

/// Adds a norm's gradients, summed over parts of the rows, to those of its parameters. part(i, sums) adds
/// the i-th part's rows to the gradients of `parameters`, one after another in `sums`.
template <typename AddPart>
void accumulate_in_parts(const std::vector<Parameter>& parameters, const RowSums& sums,
                         const AddPart& add_part) {
  const std::int64_t channels = parameters.front().numel();
  const auto of = [&](const Tensor& all, std::size_t i) {
    const auto first = static_cast<std::int64_t>(i) * channels;
    return parameters[i].trainable() ? all.slice(first, first + channels) : Tensor();
  };
  for (std::int64_t i = 0; i < sums.parts(); ++i) {
    std::vector<Tensor> gradients;
    for (std::size_t p = 0; p < parameters.size(); ++p) gradients.push_back(of(sums.part(i), p));
    add_part(i, gradients);
  }
  const Tensor total = sums.total();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!parameters[p].trainable()) continue;
    accumulate(parameters[p].gradient(), of(total, p), parameters[p].next_contribution());
  }
}

/// The node of y = layer_norm(x).
Variable layer_normed(const Tensor& y, const Variable& x, const Parameter& weight,
                      const Parameter& bias, const Moments& moments) {
  return adding_differentiable(
      y, x, weight.trainable() || bias.trainable(),
      [weight, bias, moments, x = x.data()](Tensor dy, Tensor received) {
        const Tensor dx = gradient_sum(received, dy);
        if (divides_rows(weight)) {
          const RowSums sums(weight.tensor_axis(), as_rows(x).size(0), 2 * weight.numel(),
                             x.dtype());
          accumulate_in_parts(
              {weight, bias}, sums, [&](std::int64_t i, const std::vector<Tensor>& gradients) {
                const auto rows = [&](const Tensor& t) {
                  return t.defined() ? sums.rows_of(as_rows(t), i) : t;
                };
                add_layer_norm_backward(rows(dx), gradients[0], gradients[1], rows(dy),
                                        rows(received), rows(x), weight.data(),
                                        sums.rows_of(moments.mean, i),
                                        sums.rows_of(moments.rstd, i), Accumulate::no);
              });
          return dx;
        }
        Accumulate accumulate = Accumulate::no;
        for (const Parameter& parameter : {weight, bias}) {
          if (parameter.trainable()) accumulate = parameter.next_contribution();
        }
        const std::int64_t leaves = token_leaves();
        LeafSum of_weight(wanted_gradient(weight), accumulate, leaves);
        LeafSum of_bias(wanted_gradient(bias), accumulate, leaves);
        for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
          const auto of = [&](const Tensor& rows) { return leaf_of(rows, leaf, leaves); };
          add_layer_norm_backward(of(dx), of_weight.next(), of_bias.next(), of(dy), of(received),
                                  of(x), weight.data(), of(moments.mean), of(moments.rstd),
                                  of_weight.accumulate());
          of_weight.added();
          of_bias.added();
        }
        return dx;
      });
}

/// The node of y = rms_norm(x).
Variable rms_normed(const Tensor& y, const Variable& x, const Parameter& weight,
                    const Tensor& rstd) {
  return adding_differentiable(
      y, x, weight.trainable(), [weight, rstd, x = x.data()](Tensor dy, Tensor received) {
        const Tensor dx = gradient_sum(received, dy);
        if (divides_rows(weight)) {
          const RowSums sums(weight.tensor_axis(), as_rows(x).size(0), weight.numel(), x.dtype());
          accumulate_in_parts(
              {weight}, sums, [&](std::int64_t i, const std::vector<Tensor>& gradients) {
                const auto rows = [&](const Tensor& t) {
                  return t.defined() ? sums.rows_of(as_rows(t), i) : t;
                };
                add_rms_norm_backward(rows(dx), gradients[0], rows(dy), rows(received), rows(x),
                                      weight.data(), sums.rows_of(rstd, i), Accumulate::no);
              });
          return dx;
        }
        const std::int64_t leaves = token_leaves();
        LeafSum sum(wanted_gradient(weight),
                    weight.trainable() ? weight.next_contribution() : Accumulate::no, leaves);
        for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
          const auto of = [&](const Tensor& rows) { return leaf_of(rows, leaf, leaves); };
          add_rms_norm_backward(of(dx), sum.next(), of(dy), of(received), of(x), weight.data(),
                                of(rstd), sum.accumulate());
          sum.added();
        }
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

Variable rms_norm(const Variable& x, const Parameter& weight, float epsilon) {
  const Tensor y = like(x.data());
  const Tensor rstd = row_statistic(y);
  rms_norm_forward(y, rstd, x.data(), weight.data(), epsilon);
  return rms_normed(y, x, weight, rstd);
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

SumAndNorm add_rms_norm(const Variable& x, Variable branch, const Parameter& weight,
                        float epsilon) {
  const Tensor sum = branch.is_last() ? branch.data() : like(x.data());
  const Tensor y = like(sum);
  const Tensor rstd = row_statistic(y);
  add_rms_norm_forward(y, sum, rstd, x.data(), branch.data(), weight.data(), epsilon);
  const Variable total = added(sum, x, branch);
  return {total, rms_normed(y, total, weight, rstd)};
}

}  // namespace tessera
