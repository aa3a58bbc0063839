#include "kernels/gelu/op.h"

#include "kernels/checks.h"

namespace tessera {

void gelu_forward(Out y, const Tensor& x, GeluForm form) {
  check_alike("gelu_forward", {{"y", y}, {"x", x}});
  check_apart("gelu_forward", {"y", y}, {"x", x});
  run_on<cpu::gelu_forward, cuda::gelu_forward>(y.device(), "gelu_forward", y, x, form);
}

void gelu_backward(Out dx, const Tensor& dy, const Tensor& x, GeluForm form) {
  check_alike("gelu_backward", {{"dx", dx}, {"dy", dy}, {"x", x}});
  check_same_or_apart("gelu_backward", {"dx", dx}, {"dy", dy});
  check_apart("gelu_backward", {"dx", dx}, {"x", x});
  run_on<cpu::gelu_backward, cuda::gelu_backward>(dx.device(), "gelu_backward", dx, dy, x, form);
}

}  // namespace tessera
