#include "kernels/scale/op.h"

#include "kernels/checks.h"

namespace tessera {

void scale(Out y, const Tensor& x, double factor) {
  check_on_one_device("scale", {{"y", y}, {"x", x}});
  check_same_floating("scale", {{"y", y}, {"x", x}});
  check_same_shape("scale", {"y", y}, {"x", x});
  check_same_or_apart("scale", {"y", y}, {"x", x});
  if (y.device().is_cpu()) return cpu::scale(y, x, factor);
  if constexpr (kHasCuda) return cuda::scale(y, x, factor);
  fail_no_kernel("scale", y.device());
}

}  // namespace tessera
