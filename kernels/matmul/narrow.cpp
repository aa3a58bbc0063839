#include "kernels/matmul/narrow.h"

#include "kernels/cast/op.h"
#include "kernels/cpu/elementwise.h"

namespace tessera::cpu {

void narrow(Out c, const Tensor& sums, Accumulate accumulate) {
  if (accumulate == Accumulate::no) return cast(c, sums);
  visit_floating(c.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      elementwise(
          c.numel(), c.data<T>(), [](float old, float more) { return old + more; }, c.data<T>(),
          sums.data<float>());
    }
  });
}

}  // namespace tessera::cpu
