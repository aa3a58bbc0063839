#include "kernels/layer_norm/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"

namespace tessera {
namespace {

// The checks that forward and backward share: x [N, C], weight [C], statistics [N].
void check_common(std::string_view op, const Tensor& x, const Tensor& weight, const Tensor& mean,
                  const Tensor& rstd) {
  check(x.rank() >= 1 && x.size(-1) >= 1, "{}: x is {}; its last dimension must not be empty", op,
        describe(x));
  const DType statistics = statistics_dtype(x.dtype());
  const Shape rows{x.numel() / x.size(-1)};
  check_shape(op, {"weight", weight}, {x.size(-1)});
  check_shape(op, {"mean", mean}, rows);
  check_shape(op, {"rstd", rstd}, rows);
  check_dtype(op, {"mean", mean}, statistics);
  check_dtype(op, {"rstd", rstd}, statistics);
}

void check_parameter_gradient(std::string_view op, const Argument& gradient, const Tensor& weight,
                              const Tensor& x) {
  if (!gradient.tensor.defined()) return;
  check_on_one_device(op, {gradient, {"x", x}});
  check_shape(op, gradient, weight.shape());
  check_same_dtype_or_f32(op, gradient, {"x", x});
}

}  // namespace

void layer_norm_forward(Out y, Out mean, Out rstd, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, float epsilon) {
  constexpr std::string_view op = "layer_norm_forward";
  check_on_one_device(
      op, {{"y", y}, {"mean", mean}, {"rstd", rstd}, {"x", x}, {"weight", weight}, {"bias", bias}});
  check_same_floating(op, {{"x", x}, {"y", y}, {"weight", weight}, {"bias", bias}});
  check_same_shape(op, {"y", y}, {"x", x});
  check_common(op, x, weight, mean, rstd);
  check_shape(op, {"bias", bias}, weight.shape());
  check_apart(op, {"y", y}, {"x", x});
  if (x.device().is_cpu()) {
    return cpu::layer_norm_forward(y, mean, rstd, x, weight, bias, epsilon);
  }
  fail_no_kernel(op, x.device());
}

void layer_norm_backward(Out dx, Out dweight, Out dbias, const Tensor& dy, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         Accumulate accumulate_parameters) {
  constexpr std::string_view op = "layer_norm_backward";
  check_on_one_device(
      op, {{"dx", dx}, {"dy", dy}, {"x", x}, {"weight", weight}, {"mean", mean}, {"rstd", rstd}});
  check_same_floating(op, {{"x", x}, {"dx", dx}, {"dy", dy}, {"weight", weight}});
  check_same_shape(op, {"dx", dx}, {"x", x});
  check_same_shape(op, {"dy", dy}, {"x", x});
  check_common(op, x, weight, mean, rstd);
  check_parameter_gradient(op, {"dweight", dweight}, weight, x);
  check_parameter_gradient(op, {"dbias", dbias}, weight, x);
  check_apart(op, {"dx", dx}, {"x", x});
  check_apart(op, {"dx", dx}, {"dy", dy});
  if (x.device().is_cpu()) {
    return cpu::layer_norm_backward(dx, dweight, dbias, dy, x, weight, mean, rstd,
                                    accumulate_parameters);
  }
  fail_no_kernel(op, x.device());
}

}  // namespace tessera
