#include "kernels/reduce/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

void check_floating_result(std::string_view op, const Tensor& result, const Tensor& x) {
  check_on_one_device(op, {{"result", result}, {"x", x}});
  check_floating(op, {"x", x});
  check_shape(op, {"result", result}, {1});
  check_dtype(op, {"result", result}, statistics_dtype(x.dtype()));
}

}  // namespace

void max_abs(Out result, const Tensor& x) {
  constexpr std::string_view op = "max_abs";
  check_floating_result(op, result, x);
  if (x.device().is_cpu()) return cpu::max_abs(result, x);
  if constexpr (kHasCuda) return cuda::max_abs(result, x);
  fail_no_kernel(op, x.device());
}

void sum(Out result, const Tensor& x) {
  constexpr std::string_view op = "sum";
  check_floating_result(op, result, x);
  if (x.device().is_cpu()) return cpu::sum(result, x);
  if constexpr (kHasCuda) return cuda::sum(result, x);
  fail_no_kernel(op, x.device());
}

void sum_of_squares(Out result, const Tensor& x, int exponent, Accumulate accumulate) {
  constexpr std::string_view op = "sum_of_squares";
  check_on_one_device(op, {{"result", result}, {"x", x}});
  check_floating(op, {"x", x});
  check(x.dtype() != DType::f64, "{}: x is {}; its dtype must be f32, bf16 or f16", op,
        describe(x));
  check_shape(op, {"result", result}, {2});
  check_dtype(op, {"result", result}, DType::i64);
  check(-149 <= exponent && exponent <= 128,
        "{}: the exponent is {}; that of a float is between -149 and 128", op, exponent);
  if (x.device().is_cpu()) return cpu::sum_of_squares(result, x, exponent, accumulate);
  if constexpr (kHasCuda) return cuda::sum_of_squares(result, x, exponent, accumulate);
  fail_no_kernel(op, x.device());
}

}  // namespace tessera
