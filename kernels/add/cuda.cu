// Elementwise sums.
//
// y = a + b       16 bytes of each tensor at a time. Traffic: two reads, one write (6 bytes an
//                 element in 16 bits).
// sums += addends all pairs in one launch, four elements of a pair at a time: see
//                 kernels/cuda/multi_tensor.h. Traffic: as above, 12 bytes an element in f32.
#include <type_traits>
#include <vector>

#include "kernels/add/op.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/multi_tensor.h"

namespace tessera::cuda {
namespace {

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

template <typename Sum, typename Addend>
struct Item {
  Sum* sum;
  const Addend* addend;
  std::int64_t count;

  __device__ bool has_quads() const { return gpu::are_quads(sum, addend); }
};

template <typename Sum, typename Addend>
__global__ void __launch_bounds__(gpu::kThreads)
    add_all_kernel(const __grid_constant__ gpu::TensorList<Item<Sum, Addend>> list) {
  const auto chunk = gpu::Chunk<Item<Sum, Addend>>::of_block(list);
  Sum* const sum = chunk.item.sum;
  const Addend* const addend = chunk.item.addend;
  const auto add_four = [=](std::int64_t i) {
    auto total = gpu::Quad<Sum>::load(sum + i);
    const auto added = gpu::Quad<Addend>::load(addend + i);
#pragma unroll
    for (int j = 0; j < 4; ++j) total.values[j] += added.values[j];
    total.store(sum + i);
  };
  chunk.for_each(add_four, [=](std::int64_t i) {
    gpu::store(sum[i], gpu::load(sum[i]) + gpu::load(addend[i]));
  });
}

template <typename Sum, typename Addend>
void add_lists(std::span<const Tensor> sums, std::span<const Tensor> addends) {
  std::vector<Item<Sum, Addend>> items;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    items.push_back({sums[i].data<Sum>(), addends[i].data<Addend>(), sums[i].numel()});
  }
  gpu::launch_for_each_list<Item<Sum, Addend>>(items, add_all_kernel<Sum, Addend>);
}

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
      add_lists<T, T>(sums, addends);
    } else {
      add_lists<float, T>(sums, addends);
    }
  });
}

}  // namespace tessera::cuda
