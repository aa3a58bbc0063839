#include "kernels/dropout/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"

namespace tessera {

void dropout(Out y, const Tensor& x, float probability, const RandomStream& random) {
  constexpr std::string_view op = "dropout";
  check_on_one_device(op, {{"y", y}, {"x", x}});
  check_same_floating(op, {{"x", x}, {"y", y}});
  check_same_shape(op, {"y", y}, {"x", x});
  check_same_or_apart(op, {"y", y}, {"x", x});
  check(0.0f <= probability && probability < 1.0f,
        "{}: the probability is {}; it must be at least 0 and below 1", op, probability);
  if (x.device().is_cpu()) return cpu::dropout(y, x, probability, random);
  if constexpr (kHasCuda) return cuda::dropout(y, x, probability, random);
  fail_no_kernel(op, x.device());
}

}  // namespace tessera
