#include "kernels/grouped_matmul/op.h"

#include "kernels/grouped_matmul/checks.h"
#include "kernels/swiglu/op.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {

void grouped_matmul(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                    Transpose transpose_b) {
  constexpr std::string_view op = "grouped_matmul";
  check_same_floating(op, {{"c", c}, {"a", a}});
  check_product_of_rows(op, {"c", c}, Factor(a), b, offsets, transpose_b);
  run_on<cpu::grouped_matmul, cuda::grouped_matmul>(c.device(), op, c, a, b, offsets, transpose_b);
}

void grouped_matmul_part(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                         Transpose transpose_b, const DepthPart& depths) {
  constexpr std::string_view op = "grouped_matmul_part";
  check_product_of_rows(op, {"c", c}, Factor(a), b, offsets, transpose_b);
  check_dtype(op, {"c", c}, statistics_dtype(a.dtype()));
  check(!depths.empty(), "{}: the part has no range; it needs at least one", op);
  for (const DepthRange& range : depths) {
    check(range.first >= 0 && range.count >= 1 && range.count <= a.size(1) - range.first,
          "{}: a range has {} depths from {} on; it needs at least one depth, within the {} of a",
          op, range.count, range.first, a.size(1));
  }
  run_on<cpu::grouped_matmul_part, cuda::grouped_matmul_part>(c.device(), op, c, a, b, offsets,
                                                              transpose_b, depths);
}

void grouped_matmul_swiglu(Out y, Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                           Transpose transpose_b) {
  constexpr std::string_view op = "grouped_matmul_swiglu";
  check_gated_product(op, y, c, Factor(a), b, offsets, transpose_b);
  const auto run = [&] {
    if (c.device().is_cpu()) return cpu::grouped_matmul_swiglu(y, c, a, b, offsets, transpose_b);
    if constexpr (kHasCuda) {
      if (cuda::grouped_matmul_swiglu(y, c, a, b, offsets, transpose_b)) return;
    }
    grouped_matmul(c, a, b, offsets, transpose_b);
    swiglu_forward(y, first_half(c), second_half(c));
  };
  run_observed(op, run, y, c, a, b, offsets);
}

void grouped_matmul_swiglu_backward(Out y, Out dweights, Out dgate_up, const Tensor& a,
                                    const Tensor& b, const Tensor& gate_up, const Tensor& offsets,
                                    const Tensor& places, const Tensor& slots,
                                    const Tensor& weights, Transpose transpose_b) {
  constexpr std::string_view op = "grouped_matmul_swiglu_backward";
  check_gated_gradient(op, y, dweights, dgate_up, Factor(a), b, gate_up, offsets, places, slots,
                       weights, transpose_b);
  const auto run = [&] {
    if constexpr (kHasCuda) {
      const bool suits = !weights.defined() || (slots.defined() && dweights.rank() == 2);
      if (!y.device().is_cpu() && suits &&
          cuda::grouped_matmul_swiglu_backward(y, dweights, dgate_up, a, b, gate_up, offsets, slots,
                                               weights, transpose_b)) {
        return;
      }
    }
    grouped_matmul(y, a, b, offsets, transpose_b);
    weighed_swiglu_backward(y, dweights, first_half(dgate_up), second_half(dgate_up), y,
                            first_half(gate_up), second_half(gate_up), places, weights);
  };
  run_observed(op, run, y, dweights, dgate_up, a, b, gate_up, offsets, places, slots, weights);
}

void grouped_matmul_weight(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                           Accumulate accumulate) {
  constexpr std::string_view op = "grouped_matmul_weight";
  check_product_of_weights(op, c, Factor(a), Factor(b), offsets);
  run_on<cpu::grouped_matmul_weight, cuda::grouped_matmul_weight>(c.device(), op, c, a, b, offsets,
                                                                  accumulate);
}

}  // namespace tessera
