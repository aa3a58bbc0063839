#include "kernels/rms_norm/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"

namespace tessera {
namespace {

// The checks that forward and backward share: x [N, C], weight [C], rstd [N].
void check_common(std::string_view op, const Tensor& x, const Tensor& weight, const Tensor& rstd) {
  check(x.rank() >= 1 && x.size(-1) >= 1, "{}: x is {}; its last dimension must not be empty", op,
        describe(x));
  check_shape(op, {"weight", weight}, {x.size(-1)});
  check_shape(op, {"rstd", rstd}, {x.numel() / x.size(-1)});
  check_dtype(op, {"rstd", rstd}, statistics_dtype(x.dtype()));
}

}  // namespace

void rms_norm_forward(Out y, Out rstd, const Tensor& x, const Tensor& weight, float epsilon) {
  constexpr std::string_view op = "rms_norm_forward";
  check_on_one_device(op, {{"y", y}, {"rstd", rstd}, {"x", x}, {"weight", weight}});
  check_same_floating(op, {{"x", x}, {"y", y}, {"weight", weight}});
  check_same_shape(op, {"y", y}, {"x", x});
  check_common(op, x, weight, rstd);
  check_apart(op, {"y", y}, {"x", x});
  if (x.device().is_cpu()) return cpu::rms_norm_forward(y, rstd, x, weight, epsilon);
  fail_no_kernel(op, x.device());
}

void rms_norm_backward(Out dx, Out dweight, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, Accumulate accumulate_parameters) {
  constexpr std::string_view op = "rms_norm_backward";
  check_on_one_device(op, {{"dx", dx}, {"dy", dy}, {"x", x}, {"weight", weight}, {"rstd", rstd}});
  check_same_floating(op, {{"x", x}, {"dx", dx}, {"dy", dy}, {"weight", weight}});
  check_same_shape(op, {"dx", dx}, {"x", x});
  check_same_shape(op, {"dy", dy}, {"x", x});
  check_common(op, x, weight, rstd);
  if (dweight.defined()) {
    check_on_one_device(op, {{"dweight", dweight}, {"x", x}});
    check_shape(op, {"dweight", dweight}, weight.shape());
    check_same_dtype_or_f32(op, {"dweight", dweight}, {"x", x});
  }
  check_apart(op, {"dx", dx}, {"x", x});
  check_apart(op, {"dx", dx}, {"dy", dy});
  if (x.device().is_cpu()) {
    return cpu::rms_norm_backward(dx, dweight, dy, x, weight, rstd, accumulate_parameters);
  }
  fail_no_kernel(op, x.device());
}

}  // namespace tessera
