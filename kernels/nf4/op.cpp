#include "kernels/nf4/op.h"

#include "kernels/checks.h"
#include "kernels/nf4/format.h"
#include "runtime/check.h"

namespace tessera {

Shape nf4_packed_shape(const Shape& shape) {
  check(shape.rank() >= 2, "nf4 packs matrices, not a tensor of shape {}", to_string(shape));
  return shape.with(-1, Nf4Row(shape[-1]).bytes);
}

void nf4_unpack(Out y, const Tensor& packed) {
  check_on_one_device("nf4_unpack", {{"y", y}, {"packed", packed}});
  check_floating("nf4_unpack", {"y", y});
  check_dtype("nf4_unpack", {"packed", packed}, DType::u8);
  check_shape("nf4_unpack", {"packed", packed}, nf4_packed_shape(y.shape()));
  if (y.numel() == 0) return;
  run_on<cpu::nf4_unpack, cuda::nf4_unpack>(y.device(), "nf4_unpack", y, packed);
}

}  // namespace tessera
