#include "autograd/operations/linear_gradients.h"

#include "autograd/context_axis.h"
#include "autograd/deferred_gradients.h"
#include "autograd/leaf_sum.h"
#include "autograd/operations/divided.h"
#include "kernels/bias/op.h"
#include "kernels/linear/factor.h"
#include "runtime/category.h"

namespace tessera {
namespace {

std::int64_t trained_elements(const JoinedParameters& weight) {
  std::int64_t elements = 0;
  for (const Parameter& part : weight.parts()) {
    if (part.trainable()) elements += part.held_shape().numel();
  }
  return elements;
}

/// A total in f32 is not added to 16 bits.
bool takes_total(const JoinedGradient& dbias, const Tensor& total) {
  return dbias.accumulate() == Accumulate::no || dbias.window().dtype() == total.dtype();
}
Tensor sum_of_lines(const Tensor& lines) {
  const CategoryScope scope(Category::workspace);
  const Tensor sum = Tensor::empty({lines.size(1)}, lines.dtype());
  bias_backward(sum, lines, Accumulate::no);
  return sum;
}
void add_total(const JoinedGradient& dbias, const Tensor& total) {
  const Tensor& window = dbias.window();
  if (total.rank() == 2 && window.dtype() == total.dtype()) {
    bias_backward(window, total, dbias.accumulate());
  } else {
    accumulate(window, total.rank() == 2 ? sum_of_lines(total) : total, dbias.accumulate());
  }
}

/// The only leaf has all rows, and their columns if they are there.
Factor leaf_of(const Factor& rows, std::int64_t leaf, std::int64_t leaves) {
  if (leaves == 1) return rows;
  if (!rows.columns.defined()) {
    if (rows.blocks != Fp8Blocks::tensor) return rows_of_leaf(expanded(rows), leaf, leaves);
    return {rows_of_leaf(rows.values, leaf, leaves), rows.inverse_scale};
  }
  const auto of_leaf = [&](const Tensor& all) {
    return all.slice(leaf, leaf + 1).reshape({all.size(1), all.size(2)});
  };
  Factor columns = rows.by_columns();
  columns.columns = of_leaf(rows.columns);
  columns.inverse_of_columns = of_leaf(rows.inverse_of_columns);
  return columns;
}

}  // namespace

GradientTotal total_for_bias(const JoinedParameters& bias, const Tensor& y) {
  const bool wanted = bias.trainable() && axis_of(bias) == nullptr && token_leaves() == 1;
  return wanted && !y.device().is_cpu() ? std::make_shared<Tensor>() : nullptr;
}

void accumulate_gradients(const JoinedParameters& weight, const JoinedParameters& bias,
                          const Factor& x, const Factor& dy, Transpose transpose,
                          const Tensor& dy_total) {
  if (!weight.trainable() && !bias.trainable()) return;
  run_or_defer(
      [weight, bias, x, dy = bias.trainable() ? dy : dy.by_columns(), transpose, dy_total] {
        log_product(axis_of(weight), Work::Kind::backward, dy.size(0), trained_elements(weight),
                    dy.is_fp8());
        const JoinedGradient dweight(weight), dbias(bias);
        const std::int64_t leaves = token_leaves();
        LeafSum of_weight(dweight.window(), dweight.accumulate(), leaves);
        const bool has_total = dy_total.defined() && takes_total(dbias, dy_total);
        LeafSum of_bias(has_total ? Tensor() : dbias.window(), dbias.accumulate(), leaves);
        for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
          const Factor x_of = leaf_of(x, leaf, leaves), dy_of = leaf_of(dy, leaf, leaves);
          if (weight.trainable()) {
            linear_backward_weight(of_weight.next(), of_bias.next(), x_of, dy_of, transpose,
                                   of_weight.accumulate(), of_bias.accumulate());
          } else if (!has_total) {
            bias_backward(of_bias.next(), expanded(dy_of), of_bias.accumulate());
          }
          of_weight.added();
          of_bias.added();
        }
        if (has_total) add_total(dbias, dy_total);
        dweight.finish();
        dbias.finish();
      });
}

}  // namespace tessera
