#include "kernels/cpu/elementwise.h"
#include "kernels/scale/op.h"

namespace tessera::cpu {

void scale(Out y, const Tensor& x, double factor) {
  visit_floating(y.dtype(), [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    const C s = static_cast<C>(factor);
    elementwise(
        y.numel(), y.data<T>(), [s](C v) { return s * v; }, x.data<T>());
  });
}

}  // namespace tessera::cpu
