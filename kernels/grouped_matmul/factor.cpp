#include "kernels/grouped_matmul/factor.h"

#include "kernels/observer.h"
#include "kernels/swiglu/op.h"
#include "runtime/backends.h"

namespace tessera {
namespace {

/// The product of 8-bit numbers as they are. False, and nothing is done, if no kernel takes them.
bool multiply_fp8(Out y, Out c, const Factor& a, const Factor& b, const Tensor& offsets,
                  Transpose transpose_b) {
  if (!are_fp8(a, b) || c.device().is_cpu()) return false;
  bool done = false;
  if constexpr (kHasCuda) {
    const auto run = [&] { done = cuda::fp8_grouped_matmul(y, c, a, b, offsets, transpose_b); };
    run_observed("fp8_grouped_matmul", run, y, c, a.values, b.values, offsets);
  }
  return done;
}

}  // namespace

void grouped_matmul(Out c, const Factor& a, const Factor& b, const Tensor& offsets,
                    Transpose transpose_b) {
  if (multiply_fp8({}, c, a, b, offsets, transpose_b)) return;
  grouped_matmul(c, expanded(a), expanded(b), offsets, transpose_b);
}

void grouped_matmul_swiglu(Out y, Out c, const Factor& a, const Factor& b, const Tensor& offsets,
                           Transpose transpose_b) {
  if (multiply_fp8(y, c, a, b, offsets, transpose_b)) return;
  if (multiply_fp8({}, c, a, b, offsets, transpose_b)) {
    return swiglu_forward(y, first_half(c), second_half(c));
  }
  grouped_matmul_swiglu(y, c, expanded(a), expanded(b), offsets, transpose_b);
}

void grouped_matmul_swiglu_backward(Out y, Out dweights, Out dgate_up, const Factor& a,
                                    const Factor& b, const Tensor& gate_up, const Tensor& offsets,
                                    const Tensor& places, const Tensor& slots,
                                    const Tensor& weights, Transpose transpose_b) {
  if (multiply_fp8({}, y, a, b, offsets, transpose_b)) {
    return weighed_swiglu_backward(y, dweights, first_half(dgate_up), second_half(dgate_up), y,
                                   first_half(gate_up), second_half(gate_up), places, weights);
  }
  grouped_matmul_swiglu_backward(y, dweights, dgate_up, expanded(a), expanded(b), gate_up, offsets,
                                 places, slots, weights, transpose_b);
}

}  // namespace tessera
