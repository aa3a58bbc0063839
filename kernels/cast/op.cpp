#include "kernels/cast/op.h"

#include "kernels/checks.h"

namespace tessera {

void cast(Out y, const Tensor& x) {
  check_on_one_device("cast", {{"y", y}, {"x", x}});
  check_floating("cast", {"y", y});
  check_floating("cast", {"x", x});
  check_same_shape("cast", {"y", y}, {"x", x});
  check_apart("cast", {"y", y}, {"x", x});
  if (y.device().is_cpu()) return cpu::cast(y, x);
  fail_no_kernel("cast", y.device());
}

}  // namespace tessera
