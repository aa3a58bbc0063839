// Elementwise sums.
//
// y = a + b       16 bytes of each tensor at a time. Traffic: two reads, one write (6 bytes an
//                 element in 16 bits).
// sums += addends all pairs in one launch: see kernels/cuda/pairs.h. Traffic: as above, 12 bytes an
//                 element in f32.
#include "kernels/add/op.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/pairs.h"

namespace tessera::cuda {
namespace {

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct AddTo {
  static constexpr bool kReadsTarget = true;

  template <typename Sum, typename Addend>
  __device__ void operator()(Sum& sum, const Addend& addend) const {
    gpu::store(sum, gpu::load(sum) + gpu::load(addend));
  }
};

}  // namespace

void add(Out y, const Tensor& a, const Tensor& b) {
  gpu::visit(y.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::elementwise(y.numel(), y.data<T>(), Add{}, a.data<T>(), b.data<T>());
  });
}

void add_all(std::span<const Tensor> sums, std::span<const Tensor> addends) {
  gpu::visit(addends.front().dtype(), [&](auto type) {
    using T = decltype(type);
    if (sums.front().dtype() == addends.front().dtype()) {
      gpu::for_each_pair<AddTo, T, T>(sums, addends);
    } else {
      gpu::for_each_pair<AddTo, float, T>(sums, addends);
    }
  });
}

}  // namespace tessera::cuda
