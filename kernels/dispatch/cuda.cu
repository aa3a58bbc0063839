// Rows move in 16-byte vectors, a block in one token's row; k rows of an expert lie anywhere.
//
// Traffic in 16 bits, for N tokens of C channels: dispatch reads 2NC bytes and writes 2kNC, combine
// the reverse, weigh_backward 6kNC. The order is a stable radix sort of (expert, slot).
#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/fault.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/radix_sort.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row_grid.h"
#include "kernels/dispatch/device.h"
#include "kernels/dispatch/op.h"
#include "runtime/category.h"

namespace tessera::cuda {
namespace {

using gpu::kThreads;

// ---- The order

/// A word's upper half is the expert, its lower half the index into `experts`.
__device__ inline std::int64_t expert_of(std::uint64_t word) {
  return static_cast<std::int64_t>(word >> 32);
}

/// An expert outside [0, E) becomes E, which sorts after all others.
__global__ void __launch_bounds__(kThreads)
    words_kernel(std::uint64_t* words, const std::int32_t* ids, std::int64_t rows,
                 std::int64_t experts, FaultSlot fault) {
  gpu::wait_for_launch_ahead();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows) return;
  std::int64_t expert = ids[i];
  if (expert < 0 || expert >= experts) {
    gpu::report(fault, i);
    expert = experts;
  }
  words[i] = static_cast<std::uint64_t>(expert) << 32 | static_cast<std::uint64_t>(i);
}

/// Thread p has the sorted word p, and writes the offsets of the experts that begin at place p.
/// Thread `rows` writes the others.
__global__ void __launch_bounds__(kThreads)
    places_kernel(std::int32_t* places, std::int32_t* offsets, std::int32_t* slots,
                  const std::uint64_t* sorted, std::int64_t rows, std::int64_t experts) {
  gpu::wait_for_launch_ahead();
  const std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (p > rows) return;
  if (p < rows) {
    const auto slot = static_cast<std::uint32_t>(sorted[p]);
    places[slot] = static_cast<std::int32_t>(p);
    if (slots != nullptr) slots[p] = static_cast<std::int32_t>(slot);
  }
  const std::int64_t first = p == 0 ? 0 : expert_of(sorted[p - 1]) + 1;
  const std::int64_t last = p == rows ? experts : expert_of(sorted[p]);
  for (std::int64_t e = first; e <= last; ++e) offsets[e] = static_cast<std::int32_t>(p);
}

// ---- Rows

template <int kWidth>
__device__ void scale(float (&values)[kWidth], float factor) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] *= factor;
}

/// Block (n, ...) copies token n's row to its k places.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    dispatch_kernel(T* y, const T* x, Slots<T> slots, std::int64_t columns) {
  gpu::wait_for_launch_ahead();
  const std::int64_t n = blockIdx.x, column = gpu::item_of_row() * kWidth;
  if (column >= columns) return;
  float row[kWidth];
  gpu::load_all(row, x + n * columns + column);
  for (std::int64_t s = n * slots.per_token; s < (n + 1) * slots.per_token; ++s) {
    float values[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] = row[i];
    scale(values, slots.weight(s));
    gpu::store_all(y + slots.place(s) * columns + column, values);
  }
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(T* y, const T* x, const T* residual, Slots<T> slots, std::int64_t columns) {
  gpu::wait_for_launch_ahead();
  const std::int64_t n = blockIdx.x, column = gpu::item_of_row() * kWidth;
  if (column >= columns) return;
  float sum[kWidth] = {};
  if (residual != nullptr) gpu::load_all(sum, residual + n * columns + column);
#pragma unroll 4
  for (std::int64_t s = n * slots.per_token; s < (n + 1) * slots.per_token; ++s) {
    float values[kWidth];
    gpu::load_all(values, x + slots.place(s) * columns + column);
    const float weight = slots.weight(s);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] += weight * values[i];
  }
  gpu::store_all(y + n * columns + column, sum);
}

/// A block has one dispatched row and runs along it.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    weigh_backward_kernel(T* dx, T* dweights, const T* dy, const T* x, Slots<T> slots,
                          std::int64_t columns) {
  gpu::wait_for_launch_ahead();
  const std::int64_t slot = blockIdx.x, first = slots.place(slot) * columns;
  const float weight = slots.weight(slot);
  float dot = 0.0f;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * kWidth; c < columns;
       c += static_cast<std::int64_t>(blockDim.x) * kWidth) {
    float gradient[kWidth], value[kWidth];
    gpu::load_all(gradient, dy + first + c);
    gpu::load_all(value, x + first + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) dot += gradient[i] * value[i];
    scale(gradient, weight);
    gpu::store_all(dx + first + c, gradient);
  }
  dot = gpu::block_reduce<gpu::Sum>(dot);
  if (threadIdx.x == 0) gpu::store(dweights[slot], dot);
}

/// Calls f(T{}, width) where all tensors' rows of `columns` can be read in vectors of `width`.
template <typename F>
void visit_width(std::initializer_list<Tensor> tensors, std::int64_t columns, F&& f) {
  gpu::visit(tensors.begin()->dtype(), [&](auto type) {
    using T = decltype(type);
    bool vectors = true;
    for (const Tensor& x : tensors) vectors &= gpu::is_vectorizable(x.data<T>(), columns);
    if (vectors) {
      f(type, std::integral_constant<int, gpu::Vector<T>::kSize>{});
    } else {
      f(type, std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace

void dispatch_order(Out places, Out offsets, Out slots, const Tensor& experts) {
  const std::int64_t rows = experts.numel(), E = offsets.numel() - 1;
  const CategoryScope scope(Category::workspace);
  Tensor words = Tensor::empty({rows}, DType::i64);
  if (rows > 0) {
    gpu::launch_early(words_kernel, dim3(gpu::blocks_for(rows, kThreads, INT32_MAX)),
                      dim3(kThreads), 0, gpu::stream(),
                      reinterpret_cast<std::uint64_t*>(words.raw()), experts.data<std::int32_t>(),
                      rows, E,
                      fault_slot(current_stream(),
                                 "dispatch: the expert at position {} is not one of the experts"));
    words = gpu::radix_sorted(words, 32, 32 + std::bit_width(static_cast<std::uint64_t>(E)));
  }
  gpu::launch_early(places_kernel, dim3(gpu::blocks_for(rows + 1, kThreads, INT32_MAX)),
                    dim3(kThreads), 0, gpu::stream(), places.data<std::int32_t>(),
                    offsets.data<std::int32_t>(), gpu::pointer<std::int32_t>(slots),
                    reinterpret_cast<const std::uint64_t*>(words.raw()), rows, E);
}

void dispatch(Out y, const Tensor& x, const Tensor& places, const Tensor& weights) {
  if (y.numel() == 0) return;
  const std::int64_t columns = x.size(1);
  visit_width({y, x}, columns, [&](auto type, auto width) {
    using T = decltype(type);
    const auto [blocks, threads] = gpu::row_grid(x.size(0), columns / width);
    gpu::launch_early(dispatch_kernel<decltype(width)::value, T>, blocks, threads, 0, gpu::stream(),
                      y.data<T>(), x.data<T>(), Slots<T>(places, weights), columns);
  });
}

void combine(Out y, const Tensor& x, const Tensor& places, const Tensor& weights,
             const Tensor& residual) {
  if (y.numel() == 0) return;
  const std::int64_t columns = x.size(1);
  visit_width({y, x, residual.defined() ? residual : y}, columns, [&](auto type, auto width) {
    using T = decltype(type);
    const auto [blocks, threads] = gpu::row_grid(y.size(0), columns / width);
    gpu::launch_early(combine_kernel<decltype(width)::value, T>, blocks, threads, 0, gpu::stream(),
                      y.data<T>(), x.data<T>(), gpu::pointer<T>(residual),
                      Slots<T>(places, weights), columns);
  });
}

void weigh_backward(Out dx, Out dweights, const Tensor& dy, const Tensor& x, const Tensor& places,
                    const Tensor& weights) {
  if (places.numel() == 0) return;
  const std::int64_t columns = x.size(1);
  visit_width({dx, dy, x}, columns, [&](auto type, auto width) {
    using T = decltype(type);
    const auto blocks = static_cast<unsigned>(places.numel());
    const std::int64_t threads =
        std::clamp<std::int64_t>(round_up(columns / width, 32), 32, kThreads);
    gpu::launch_early(weigh_backward_kernel<decltype(width)::value, T>, dim3(blocks),
                      dim3(static_cast<unsigned>(threads)), 0, gpu::stream(), dx.data<T>(),
                      dweights.data<T>(), dy.data<T>(), x.data<T>(), Slots<T>(places, weights),
                      columns);
  });
}

}  // namespace tessera::cuda
