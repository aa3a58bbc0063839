#include "kernels/gelu/op.h"

#include "kernels/checks.h"

namespace tessera {

void gelu_forward(Out y, const Tensor& x, GeluForm form) {
  check_on_one_device("gelu_forward", {{"y", y}, {"x", x}});
  check_same_floating("gelu_forward", {{"y", y}, {"x", x}});
  check_same_shape("gelu_forward", {"y", y}, {"x", x});
  check_apart("gelu_forward", {"y", y}, {"x", x});
  if (y.device().is_cpu()) return cpu::gelu_forward(y, x, form);
  if constexpr (kHasCuda) return cuda::gelu_forward(y, x, form);
  fail_no_kernel("gelu_forward", y.device());
}

void gelu_backward(Out dx, const Tensor& dy, const Tensor& x, GeluForm form) {
  check_on_one_device("gelu_backward", {{"dx", dx}, {"dy", dy}, {"x", x}});
  check_same_floating("gelu_backward", {{"dx", dx}, {"dy", dy}, {"x", x}});
  check_same_shape("gelu_backward", {"dx", dx}, {"dy", dy});
  check_same_shape("gelu_backward", {"dx", dx}, {"x", x});
  check_same_or_apart("gelu_backward", {"dx", dx}, {"dy", dy});
  check_apart("gelu_backward", {"dx", dx}, {"x", x});
  if (dx.device().is_cpu()) return cpu::gelu_backward(dx, dy, x, form);
  if constexpr (kHasCuda) return cuda::gelu_backward(dx, dy, x, form);
  fail_no_kernel("gelu_backward", dx.device());
}

}  // namespace tessera
