#include "kernels/cast/op.h"

#include "kernels/checks.h"
#include "runtime/category.h"

namespace tessera {

void cast(Out y, const Tensor& x) {
  check_on_one_device("cast", {{"y", y}, {"x", x}});
  check_floating("cast", {"y", y});
  check_floating("cast", {"x", x});
  check_same_shape("cast", {"y", y}, {"x", x});
  check_apart("cast", {"y", y}, {"x", x});
  if (y.device().is_cpu()) return cpu::cast(y, x);
  if constexpr (kHasCuda) return cuda::cast(y, x);
  fail_no_kernel("cast", y.device());
}

Tensor widened(const Tensor& x) {
  if (size_of(x.dtype()) != 2) return x;
  const CategoryScope scope(Category::workspace);
  const Tensor wide = Tensor::empty(x.shape(), DType::f32);
  cast(wide, x);
  return wide;
}

}  // namespace tessera
