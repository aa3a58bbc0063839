#include "kernels/rms_norm/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

// The checks that forward and backward share: x [N, C], weight [C], rstd [N].
void check_common(std::string_view op, const Argument& x, const Tensor& weight,
                  const Tensor& rstd) {
  check(x.tensor.rank() >= 1 && x.tensor.size(-1) >= 1,
        "{}: {} is {}; its last dimension must not be empty", op, x.name, describe(x.tensor));
  check_shape(op, {"weight", weight}, {x.tensor.size(-1)});
  check_shape(op, {"rstd", rstd}, {x.tensor.numel() / x.tensor.size(-1)});
  check_dtype(op, {"rstd", rstd}, statistics_dtype(x.tensor.dtype()));
}

void check_backward(std::string_view op, Out dx, Out dweight, const Tensor& dy, const Argument& x,
                    const Tensor& weight, const Tensor& rstd) {
  check_on_one_device(op, {{"dx", dx}, {"dy", dy}, x, {"weight", weight}, {"rstd", rstd}});
  check_same_floating(op, {x, {"dx", dx}, {"dy", dy}, {"weight", weight}});
  check_same_shape(op, {"dx", dx}, x);
  check_same_shape(op, {"dy", dy}, x);
  check_common(op, x, weight, rstd);
  if (dweight.defined()) {
    check_on_one_device(op, {{"dweight", dweight}, x});
    check_shape(op, {"dweight", dweight}, weight.shape());
    check_same_dtype_or_f32(op, {"dweight", dweight}, x);
  }
  check_apart(op, {"dx", dx}, x);
  check_apart(op, {"dx", dx}, {"dy", dy});
}

}  // namespace

void rms_norm_forward(Out y, Out rstd, const Tensor& x, const Tensor& weight, float epsilon,
                      float offset) {
  constexpr std::string_view op = "rms_norm_forward";
  check_on_one_device(op, {{"y", y}, {"rstd", rstd}, {"x", x}, {"weight", weight}});
  check_same_floating(op, {{"x", x}, {"y", y}, {"weight", weight}});
  check_same_shape(op, {"y", y}, {"x", x});
  check_common(op, {"x", x}, weight, rstd);
  check_apart(op, {"y", y}, {"x", x});
  run_on<cpu::rms_norm_forward, cuda::rms_norm_forward>(x.device(), op, y, Tensor(), rstd, x,
                                                        Tensor(), weight, epsilon, offset);
}

void add_rms_norm_forward(Out y, Out sum, Out rstd, const Tensor& x, const Tensor& residual,
                          const Tensor& weight, float epsilon, float offset) {
  constexpr std::string_view op = "add_rms_norm_forward";
  const Argument in{"x", x}, added{"residual", residual}, out{"y", y}, total{"sum", sum};
  check_on_one_device(op, {out, total, {"rstd", rstd}, in, added, {"weight", weight}});
  check_same_floating(op, {in, out, total, added, {"weight", weight}});
  for (const Argument& other : {out, total, added}) check_same_shape(op, other, in);
  check_common(op, in, weight, rstd);
  for (const Argument& other : {in, added, total}) check_apart(op, out, other);
  check_same_or_apart(op, total, in);
  check_same_or_apart(op, total, added);
  run_on<cpu::rms_norm_forward, cuda::rms_norm_forward>(x.device(), op, y, sum, rstd, x, residual,
                                                        weight, epsilon, offset);
}

void rms_norm_backward(Out dx, Out dweight, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, Accumulate accumulate_parameters, float offset) {
  constexpr std::string_view op = "rms_norm_backward";
  check_backward(op, dx, dweight, dy, {"x", x}, weight, rstd);
  run_on<cpu::rms_norm_backward, cuda::rms_norm_backward>(
      x.device(), op, dx, dweight, dy, Tensor(), x, weight, rstd, accumulate_parameters, offset);
}

void add_rms_norm_backward(Out dx, Out dweight, const Tensor& dy, const Tensor& dsum,
                           const Tensor& sum, const Tensor& weight, const Tensor& rstd,
                           Accumulate accumulate_parameters, float offset) {
  constexpr std::string_view op = "add_rms_norm_backward";
  const Argument x{"sum", sum};
  check_backward(op, dx, dweight, dy, x, weight, rstd);
  if (dsum.defined()) {
    check_alike(op, {{"dsum", dsum}, x});
    check_same_or_apart(op, {"dx", dx}, {"dsum", dsum});
  }
  run_on<cpu::rms_norm_backward, cuda::rms_norm_backward>(
      sum.device(), op, dx, dweight, dy, dsum, sum, weight, rstd, accumulate_parameters, offset);
}

}  // namespace tessera
