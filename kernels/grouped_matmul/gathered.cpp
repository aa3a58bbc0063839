#include "kernels/grouped_matmul/gathered.h"

#include "kernels/dispatch/op.h"
#include "kernels/grouped_matmul/checks.h"
#include "runtime/category.h"

namespace tessera {
namespace {

/// The product as one launch that gathers. False, and nothing is done, if no kernel does.
bool multiply_tokens(Out y, Out c, const RoutedRows& a, const Tensor& b, const Tensor& offsets,
                     Transpose transpose_b) {
  bool done = false;
  if constexpr (kHasCuda) {
    if (!a.slots.defined() || c.device().is_cpu()) return false;
    const auto run = [&] {
      done = cuda::gathered_grouped_matmul(y, c, a, b, offsets, transpose_b);
    };
    run_observed("gathered_grouped_matmul", run, y, c, a.values.values, a.slots, b, offsets);
  }
  return done;
}
bool multiply_tokens_gradient(Out y, Out dweights, Out dgate_up, const RoutedRows& a,
                              const Tensor& b, const Tensor& gate_up, const Tensor& offsets,
                              const Tensor& slots, const Tensor& weights, Transpose transpose_b) {
  bool done = false;
  if constexpr (kHasCuda) {
    const bool weighs = weights.defined();
    if (!a.slots.defined() || y.device().is_cpu()) return false;
    if (weighs && (!slots.defined() || dweights.rank() != 2)) return false;
    const auto run = [&] {
      done = cuda::gathered_grouped_matmul_swiglu_backward(y, dweights, dgate_up, a, b, gate_up,
                                                           offsets, slots, weights, transpose_b);
    };
    run_observed("gathered_grouped_matmul_swiglu_backward", run, y, dweights, dgate_up,
                 a.values.values, a.slots, b, gate_up, offsets, slots, weights);
  }
  return done;
}
bool multiply_tokens_weight(Out c, const RoutedRows& a, const RoutedRows& b, const Tensor& offsets,
                            Accumulate accumulate) {
  bool done = false;
  if constexpr (kHasCuda) {
    const Tensor& slots = a.of_tokens() ? a.slots : b.slots;
    if (!slots.defined() || c.device().is_cpu()) return false;
    const auto run = [&] {
      done = cuda::gathered_grouped_matmul_weight(c, a, b, offsets, accumulate);
    };
    run_observed("gathered_grouped_matmul_weight", run, c, a.values.values, b.values.values, slots,
                 offsets);
  }
  return done;
}

}  // namespace

bool gathers_rows(const Tensor& tokens) {
  if (tokens.device().is_cpu()) return false;
  if constexpr (kHasCuda) return cuda::gathers_rows(tokens);
  return false;
}

Factor dispatched(const RoutedRows& rows) {
  if (!rows.of_tokens()) return rows.values;
  const CategoryScope scope(Category::workspace);
  const Tensor& tokens = rows.values.values;
  const Tensor by_expert = Tensor::empty({rows.size(0), rows.size(1)}, tokens.dtype());
  dispatch(by_expert, tokens, rows.places);
  return by_expert;
}

RoutedRows expanded_rows(const RoutedRows& rows) {
  return rows.of_tokens() ? rows : RoutedRows(expanded(rows.values));
}

void grouped_matmul(Out c, const RoutedRows& a, const Factor& b, const Tensor& offsets,
                    Transpose transpose_b) {
  if (a.of_tokens()) {
    constexpr std::string_view op = "grouped_matmul";
    check_same_floating(op, {{"c", c}, {"a", a.values.values}});
    check_product_of_rows(op, {"c", c}, a, b.values, offsets, transpose_b);
    if (multiply_tokens({}, c, a, b.values, offsets, transpose_b)) return;
  }
  grouped_matmul(c, dispatched(a), b, offsets, transpose_b);
}

void grouped_matmul_swiglu(Out y, Out c, const RoutedRows& a, const Factor& b,
                           const Tensor& offsets, Transpose transpose_b) {
  if (a.of_tokens()) {
    check_gated_product("grouped_matmul_swiglu", y, c, a, b.values, offsets, transpose_b);
    if (multiply_tokens(y, c, a, b.values, offsets, transpose_b)) return;
  }
  grouped_matmul_swiglu(y, c, dispatched(a), b, offsets, transpose_b);
}

void grouped_matmul_swiglu_backward(Out y, Out dweights, Out dgate_up, const RoutedRows& a,
                                    const Factor& b, const Tensor& gate_up, const Tensor& offsets,
                                    const Tensor& places, const Tensor& slots,
                                    const Tensor& weights, Transpose transpose_b) {
  if (a.of_tokens()) {
    check_gated_gradient("grouped_matmul_swiglu_backward", y, dweights, dgate_up, a, b.values,
                         gate_up, offsets, places, slots, weights, transpose_b);
    if (multiply_tokens_gradient(y, dweights, dgate_up, a, b.values, gate_up, offsets, slots,
                                 weights, transpose_b)) {
      return;
    }
  }
  grouped_matmul_swiglu_backward(y, dweights, dgate_up, dispatched(a), b, gate_up, offsets, places,
                                 slots, weights, transpose_b);
}

void grouped_matmul_weight(Out c, const RoutedRows& a, const RoutedRows& b, const Tensor& offsets,
                           Accumulate accumulate) {
  if (a.of_tokens() || b.of_tokens()) {
    check_product_of_weights("grouped_matmul_weight", c, a, b, offsets);
    if (multiply_tokens_weight(c, a, b, offsets, accumulate)) return;
  }
  grouped_matmul_weight(c, dispatched(a).values, dispatched(b).values, offsets, accumulate);
}

}  // namespace tessera
