#include "kernels/add/op.h"

#include "kernels/checks.h"

namespace tessera {

void add(Out y, const Tensor& a, const Tensor& b) {
  check_on_one_device("add", {{"y", y}, {"a", a}, {"b", b}});
  check_same_floating("add", {{"y", y}, {"a", a}, {"b", b}});
  check_same_shape("add", {"y", y}, {"a", a});
  check_same_shape("add", {"y", y}, {"b", b});
  check_same_or_apart("add", {"y", y}, {"a", a});
  check_same_or_apart("add", {"y", y}, {"b", b});
  if (y.device().is_cpu()) return cpu::add(y, a, b);
  if constexpr (kHasCuda) return cuda::add(y, a, b);
  fail_no_kernel("add", y.device());
}

}  // namespace tessera
