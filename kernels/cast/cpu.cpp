#include "kernels/cast/convert.h"
#include "kernels/cast/op.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/multi_tensor.h"

namespace tessera::cpu {

void cast_all(std::span<const Tensor> ys, std::span<const Tensor> xs) {
  visit_floating(ys.front().dtype(), [&](auto to) {
    visit_floating(xs.front().dtype(), [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      for_each_chunk(ys, kElementwiseChunk,
                     [&](std::size_t i, std::int64_t begin, std::int64_t end) {
                       convert(ys[i].data<To>() + begin, xs[i].data<From>() + begin, end - begin);
                     });
    });
  });
}

}  // namespace tessera::cpu
