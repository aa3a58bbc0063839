#include "autograd/expert_layer.h"

#include "autograd/activations.h"
#include "autograd/adapter.h"
#include "autograd/fp8.h"
#include "autograd/operations/divided.h"
#include "kernels/add/op.h"
#include "kernels/grouped_matmul/gathered.h"
#include "kernels/scale/op.h"
#include "kernels/swiglu/op.h"
#include "runtime/stream_log.h"

namespace tessera {
namespace {

/// In a dry run rows travel while others are computed, so each product is work of its own. `parts`: of this
/// rank's sums.
void log_product(Work::Kind kind, const RoutedRows& rows, std::int64_t inputs, std::int64_t outputs,
                 std::int64_t parts, bool in_8_bits = false) {
  const auto products = static_cast<double>(rows.size(0) * inputs * outputs);
  const double amount = 2.0 * products / static_cast<double>(parts);
  log_work({.kind = kind, .amount = amount, .in_8_bits = in_8_bits ? amount : 0.0});
}
/// Other products of 8-bit factors expand them (kernels/grouped_matmul/factor.h).
bool multiplies_in_8_bits(const RoutedRows& rows, WeightLayout layout) {
  return rows.values.is_fp8() && layout == WeightLayout::out_in;
}

Transpose forward(WeightLayout layout) {
  return layout == WeightLayout::out_in ? Transpose::yes : Transpose::no;
}
Transpose backward(WeightLayout layout) {
  return opposite(forward(layout));
}

/// scaling x factor^T (or, with Transpose::no, x factor) of a factor [E, rows, columns].
Tensor scaled_product(const Parameter& factor, double scaling, const RoutedRows& x,
                      const Tensor& offsets, Transpose transpose, Work::Kind kind) {
  const std::int64_t columns = factor.held_shape()[transpose == Transpose::yes ? 1 : 2];
  const Tensor y = activation({x.size(0), columns}, product_dtype(x.values));
  log_product(kind, x, x.size(1), columns, 1);
  grouped_matmul(y, x, factor.data(), offsets, transpose);
  if (scaling != 1.0) scale(y, y, scaling);
  return y;
}

/// y += x factor^T (or x factor), where y may be f32 for x of 16 bits.
void add_product(const Tensor& y, const Parameter& factor, const Tensor& x, const Tensor& offsets,
                 Transpose transpose, Work::Kind kind) {
  const Tensor addend = activation(y.shape(), y.dtype());
  log_product(kind, Factor(x), x.size(1), y.size(1), 1);
  if (y.dtype() == x.dtype()) {
    grouped_matmul(addend, x, factor.data(), offsets, transpose);
  } else {
    grouped_matmul_part(addend, x, factor.data(), offsets, transpose, {{0, x.size(1)}});
  }
  add(y, y, addend);
}

/// y += scaling (x A^T) B^T.
void add_forward(const Tensor& y, const Adapter* adapter, const RoutedRows& rows,
                 const Tensor& offsets) {
  if (adapter == nullptr) return;
  const RoutedRows x = expanded_rows(rows);
  const Tensor u =
      scaled_product(adapter->a, adapter->scaling, x, offsets, Transpose::yes, Work::Kind::forward);
  add_product(y, adapter->b, u, offsets, Transpose::yes, Work::Kind::forward);
}

/// dx += scaling (dy B) A.
void add_backward(const Tensor& dx, const Adapter* adapter, const RoutedRows& rows,
                  const Tensor& offsets) {
  if (adapter == nullptr) return;
  const RoutedRows dy = expanded_rows(rows);
  const Tensor du = scaled_product(adapter->b, adapter->scaling, dy, offsets, Transpose::no,
                                   Work::Kind::backward);
  add_product(dx, adapter->a, du, offsets, Transpose::no, Work::Kind::backward);
}

}  // namespace

std::int64_t ExpertLayer::inputs() const {
  return weight.held_shape()[layout == WeightLayout::out_in ? 2 : 1];
}

std::int64_t ExpertLayer::outputs() const {
  return weight.held_shape()[layout == WeightLayout::out_in ? 1 : 2];
}

bool ExpertLayer::trains() const {
  const Adapter* const adapter = weight.adapter().get();
  return weight.trainable() ||
         (adapter != nullptr && (adapter->a.trainable() || adapter->b.trainable()));
}

Factor ExpertLayer::factor(const Factor& rows) const {
  return weight_factor(weight, product_dtype(rows));
}

Tensor ExpertLayer::operator()(const RoutedRows& rows, const Tensor& offsets) const {
  const Factor w = factor(rows.values);
  const Tensor y = activation({rows.size(0), outputs()}, product_dtype(rows.values));
  log_product(Work::Kind::forward, rows, inputs(), outputs(), 1,
              multiplies_in_8_bits(rows, layout));
  grouped_matmul(y, rows, w, offsets, forward(layout));
  add_forward(y, weight.adapter().get(), rows, offsets);
  return y;
}

std::pair<Tensor, Tensor> ExpertLayer::gated(const RoutedRows& rows, const Tensor& offsets) const {
  const Tensor h = activation({rows.size(0), outputs() / 2}, product_dtype(rows.values));
  if (weight.adapter() != nullptr) {
    const Tensor y = (*this)(rows, offsets);
    swiglu_forward(h, first_half(y), second_half(y));
    return {y, h};
  }
  const Factor w = factor(rows.values);
  const Tensor y = activation({rows.size(0), outputs()}, product_dtype(rows.values));
  log_product(Work::Kind::forward, rows, inputs(), outputs(), 1,
              multiplies_in_8_bits(rows, layout));
  grouped_matmul_swiglu(h, y, rows, w, offsets, forward(layout));
  return {y, h};
}

Tensor ExpertLayer::input_gradient(const RoutedRows& rows, const Tensor& offsets) const {
  const Factor w = factor(rows.values);
  const Tensor dx = activation({rows.size(0), inputs()}, product_dtype(rows.values));
  log_product(Work::Kind::backward, rows, inputs(), outputs(), 1);
  grouped_matmul(dx, rows, w, offsets, backward(layout));
  add_backward(dx, weight.adapter().get(), rows, offsets);
  return dx;
}

Tensor ExpertLayer::swiglu_gradient(const Tensor& dweights, const Tensor& gate_up,
                                    const RoutedRows& rows, const Tensor& offsets,
                                    const Tensor& places, const Tensor& slots,
                                    const Tensor& weights) const {
  if (weight.adapter() != nullptr) {
    const Tensor h = input_gradient(rows, offsets);
    const Columns gate = first_half(gate_up), up = second_half(gate_up);
    weighed_swiglu_backward(h, dweights, gate, up, h, gate, up, places, weights);
    return h;
  }
  const Factor w = factor(rows.values);
  const Tensor h = activation({rows.size(0), inputs()}, product_dtype(rows.values));
  log_product(Work::Kind::backward, rows, inputs(), outputs(), 1);
  grouped_matmul_swiglu_backward(h, dweights, gate_up, rows, w, gate_up, offsets, places, slots,
                                 weights, backward(layout));
  return h;
}

Tensor ExpertLayer::part(const Factor& rows, const Tensor& offsets, std::int64_t i) const {
  const Factor w = factor(rows);
  const Tensor y = activation({rows.size(0), outputs()}, statistics_dtype(product_dtype(rows)));
  log_product(Work::Kind::forward, rows, inputs(), outputs(), parts());
  grouped_matmul_part(y, expanded(rows), expanded(w), offsets, forward(layout),
                      depths_of_part(inputs(), 1, i, parts()));
  if (i == 0) add_forward(y, weight.adapter().get(), rows, offsets);
  return y;
}

Tensor ExpertLayer::input_gradient_part(const Factor& rows, const Tensor& offsets,
                                        std::int64_t i) const {
  const Factor w = factor(rows);
  const Tensor dx = activation({rows.size(0), inputs()}, statistics_dtype(product_dtype(rows)));
  log_product(Work::Kind::backward, rows, inputs(), outputs(), parts());
  grouped_matmul_part(dx, expanded(rows), expanded(w), offsets, backward(layout),
                      depths_of_part(outputs(), weight.cut().groups, i, parts()));
  if (i == 0) add_backward(dx, weight.adapter().get(), rows, offsets);
  return dx;
}

namespace {

/// The sums for a parameter's gradient windows; none if it is undefined or frozen.
std::vector<LeafSum> sums_for(const Parameter& parameter, std::int64_t pieces) {
  std::vector<LeafSum> sums;
  if (!parameter.trainable()) return sums;
  const Accumulate accumulate = parameter.next_contribution();
  for (const Tensor& window : parameter.gradients()) {
    sums.emplace_back(window, accumulate, pieces);
  }
  return sums;
}

}  // namespace

ExpertLayerGradient::ExpertLayerGradient(ExpertLayer layer, std::int64_t pieces)
    : layer_(std::move(layer)), of_weight_(sums_for(layer_.weight, pieces)) {
  const Adapter* const adapter = layer_.weight.adapter().get();
  if (adapter == nullptr) return;
  of_a_ = sums_for(adapter->a, pieces);
  of_b_ = sums_for(adapter->b, pieces);
}

void ExpertLayerGradient::add(const RoutedRows& inputs, const RoutedRows& gradients,
                              const ExpertRows& at) {
  const RoutedRows x = expanded_rows(inputs), dy = expanded_rows(gradients);
  const bool out_in = layer_.layout == WeightLayout::out_in;
  if (!of_weight_.empty()) add_products(of_weight_, out_in ? dy : x, out_in ? x : dy, at);
  if (of_a_.empty() && of_b_.empty()) return;
  const Adapter& adapter = *layer_.weight.adapter();
  const auto scaled = [&](const Parameter& factor, const RoutedRows& rows, Transpose transpose) {
    return Factor(scaled_product(factor, adapter.scaling, rows, at.offsets(), transpose,
                                 Work::Kind::backward));
  };
  if (!of_a_.empty()) add_products(of_a_, scaled(adapter.b, dy, Transpose::no), x, at);
  if (!of_b_.empty()) add_products(of_b_, dy, scaled(adapter.a, x, Transpose::yes), at);
}

void ExpertLayerGradient::add_products(Sums& sums, const RoutedRows& a, const RoutedRows& b,
                                       const ExpertRows& at) {
  log_product(Work::Kind::backward, a, a.size(1), b.size(1), 1);
  for (int s = 0; s < at.sums(); ++s) {
    LeafSum& sum = sums[static_cast<std::size_t>(s)];
    grouped_matmul_weight(sum.next(), at.rows_of(a, s), at.rows_of(b, s), at.offsets_of(s),
                          sum.accumulate());
    sum.added();
  }
}

}  // namespace tessera
