#include "kernels/layer_norm/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

// The checks that forward and backward share: x [N, C], weight [C], statistics [N].
void check_common(std::string_view op, const Argument& x, const Tensor& weight, const Tensor& mean,
                  const Tensor& rstd) {
  check(x.tensor.rank() >= 1 && x.tensor.size(-1) >= 1,
        "{}: {} is {}; its last dimension must not be empty", op, x.name, describe(x.tensor));
  const DType statistics = statistics_dtype(x.tensor.dtype());
  const Shape rows{x.tensor.numel() / x.tensor.size(-1)};
  check_shape(op, {"weight", weight}, {x.tensor.size(-1)});
  check_shape(op, {"mean", mean}, rows);
  check_shape(op, {"rstd", rstd}, rows);
  check_dtype(op, {"mean", mean}, statistics);
  check_dtype(op, {"rstd", rstd}, statistics);
}

void check_parameter_gradient(std::string_view op, const Argument& gradient, const Tensor& weight,
                              const Argument& x) {
  if (!gradient.tensor.defined()) return;
  check_on_one_device(op, {gradient, x});
  check_shape(op, gradient, weight.shape());
  check_same_dtype_or_f32(op, gradient, x);
}

void check_backward(std::string_view op, Out dx, Out dweight, Out dbias, const Tensor& dy,
                    const Argument& x, const Tensor& weight, const Tensor& mean,
                    const Tensor& rstd) {
  check_on_one_device(
      op, {{"dx", dx}, {"dy", dy}, x, {"weight", weight}, {"mean", mean}, {"rstd", rstd}});
  check_same_floating(op, {x, {"dx", dx}, {"dy", dy}, {"weight", weight}});
  check_same_shape(op, {"dx", dx}, x);
  check_same_shape(op, {"dy", dy}, x);
  check_common(op, x, weight, mean, rstd);
  check_parameter_gradient(op, {"dweight", dweight}, weight, x);
  check_parameter_gradient(op, {"dbias", dbias}, weight, x);
  check_apart(op, {"dx", dx}, x);
  check_apart(op, {"dx", dx}, {"dy", dy});
}

}  // namespace

void layer_norm_forward(Out y, Out mean, Out rstd, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, float epsilon) {
  constexpr std::string_view op = "layer_norm_forward";
  check_on_one_device(
      op, {{"y", y}, {"mean", mean}, {"rstd", rstd}, {"x", x}, {"weight", weight}, {"bias", bias}});
  check_same_floating(op, {{"x", x}, {"y", y}, {"weight", weight}, {"bias", bias}});
  check_same_shape(op, {"y", y}, {"x", x});
  check_common(op, {"x", x}, weight, mean, rstd);
  check_shape(op, {"bias", bias}, weight.shape());
  check_apart(op, {"y", y}, {"x", x});
  run_on<cpu::layer_norm_forward, cuda::layer_norm_forward>(x.device(), op, y, Tensor(), mean, rstd,
                                                            x, Tensor(), weight, bias, epsilon);
}

void add_layer_norm_forward(Out y, Out sum, Out mean, Out rstd, const Tensor& x,
                            const Tensor& residual, const Tensor& weight, const Tensor& bias,
                            float epsilon) {
  constexpr std::string_view op = "add_layer_norm_forward";
  const Argument in{"x", x}, added{"residual", residual}, out{"y", y}, total{"sum", sum};
  const Argument scale{"weight", weight}, shift{"bias", bias};
  check_on_one_device(op, {out, total, {"mean", mean}, {"rstd", rstd}, in, added, scale, shift});
  check_same_floating(op, {in, out, total, added, scale, shift});
  for (const Argument& other : {out, total, added}) check_same_shape(op, other, in);
  check_common(op, in, weight, mean, rstd);
  check_shape(op, shift, weight.shape());
  for (const Argument& other : {in, added, total}) check_apart(op, out, other);
  check_same_or_apart(op, total, in);
  check_same_or_apart(op, total, added);
  run_on<cpu::layer_norm_forward, cuda::layer_norm_forward>(x.device(), op, y, sum, mean, rstd, x,
                                                            residual, weight, bias, epsilon);
}

void layer_norm_backward(Out dx, Out dweight, Out dbias, const Tensor& dy, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         Accumulate accumulate_parameters) {
  constexpr std::string_view op = "layer_norm_backward";
  check_backward(op, dx, dweight, dbias, dy, {"x", x}, weight, mean, rstd);
  run_on<cpu::layer_norm_backward, cuda::layer_norm_backward>(x.device(), op, dx, Tensor(), dweight,
                                                              dbias, dy, Tensor(), x, weight, mean,
                                                              rstd, accumulate_parameters);
}

void add_layer_norm_backward(Out dx, Out dx_total, Out dweight, Out dbias, const Tensor& dy,
                             const Tensor& dsum, const Tensor& sum, const Tensor& weight,
                             const Tensor& mean, const Tensor& rstd,
                             Accumulate accumulate_parameters) {
  constexpr std::string_view op = "add_layer_norm_backward";
  const Argument x{"sum", sum};
  check_backward(op, dx, dweight, dbias, dy, x, weight, mean, rstd);
  if (dsum.defined()) {
    check_alike(op, {{"dsum", dsum}, x});
    check_same_or_apart(op, {"dx", dx}, {"dsum", dsum});
  }
  if (dx_total.defined()) {
    check_on_one_device(op, {{"dx", dx}, {"dx_total", dx_total}});
    check_shape(op, {"dx_total", dx_total}, weight.shape());
    check_dtype(op, {"dx_total", dx_total}, statistics_dtype(dx.dtype()));
  }
  run_on<cpu::layer_norm_backward, cuda::layer_norm_backward>(sum.device(), op, dx, dx_total,
                                                              dweight, dbias, dy, dsum, sum, weight,
                                                              mean, rstd, accumulate_parameters);
}

}  // namespace tessera
