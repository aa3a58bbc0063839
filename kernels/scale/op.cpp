#include "kernels/scale/op.h"

#include "kernels/checks.h"

namespace tessera {

void scale(Out y, const Tensor& x, double factor) {
  check_alike("scale", {{"y", y}, {"x", x}});
  check_same_or_apart("scale", {"y", y}, {"x", x});
  run_on<cpu::scale, cuda::scale>(y.device(), "scale", y, x, factor);
}

}  // namespace tessera
