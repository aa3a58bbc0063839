#include "kernels/dropout/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"

namespace tessera {

void dropout(Out y, const Tensor& x, float probability, const RandomStream& random,
             std::int64_t first) {
  constexpr std::string_view op = "dropout";
  check_alike(op, {{"y", y}, {"x", x}});
  check_same_or_apart(op, {"y", y}, {"x", x});
  check(0.0f <= probability && probability < 1.0f,
        "{}: the probability is {}; it must be at least 0 and below 1", op, probability);
  check(first >= 0 && first % 4 == 0,
        "{}: x begins at element {}; expected a multiple of 4, so that it begins with a block of "
        "random "
        "words",
        op, first);
  run_on<cpu::dropout, cuda::dropout>(x.device(), op, y, x, probability, random, first);
}

}  // namespace tessera
