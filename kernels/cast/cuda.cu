// Conversion between f32, bf16 and f16.
//
// Traffic: x read, y written (6 bytes an element between 16 bits and f32).
#include <type_traits>

#include "kernels/cast/device.h"
#include "kernels/cast/op.h"
#include "kernels/cuda/pairs.h"

namespace tessera::cuda {
namespace {

struct Convert {
  static constexpr bool kReadsTarget = false;

  template <typename To, typename From>
  __device__ void operator()(To& y, const From& x) const {
    if constexpr (std::is_same_v<To, From>) {
      y = x;
    } else {
      gpu::narrow(y, gpu::widen(x));
    }
  }
};

}  // namespace

void cast_all(std::span<const Tensor> ys, std::span<const Tensor> xs) {
  gpu::visit(ys.front().dtype(), [&](auto to) {
    gpu::visit(xs.front().dtype(), [&](auto from) {
      gpu::for_each_pair<Convert, decltype(to), decltype(from)>(ys, xs);
    });
  });
}

}  // namespace tessera::cuda
