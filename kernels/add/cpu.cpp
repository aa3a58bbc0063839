#include "kernels/add/op.h"
#include "kernels/cpu/elementwise.h"

namespace tessera::cpu {

void add(Out y, const Tensor& a, const Tensor& b) {
  visit_floating(y.dtype(), [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    elementwise(
        y.numel(), y.data<T>(), [](C p, C q) { return p + q; }, a.data<T>(), b.data<T>());
  });
}

}  // namespace tessera::cpu
