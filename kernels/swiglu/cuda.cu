// SwiGLU and GeGLU: a thread takes 16 bytes of every tensor, a block a slice of one row.
//
// Traffic in 16 bits: forward reads gate and up and writes y, 6NF bytes; backward reads dy, gate
// and up and writes dgate and dup, 10NF bytes. Backward computes s again: two slow instructions
// (exp, reciprocal) an element. Saving s would cost 2NF bytes each way. weighed_swiglu_backward writes y
// too, 12NF bytes. A block has a row there, for its sum.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row_grid.h"
#include "kernels/dispatch/device.h"
#include "kernels/gelu/device.h"
#include "kernels/swiglu/op.h"

namespace tessera::cuda {
namespace {

using gpu::kThreads;

/// The columns of row n begin at first + n * stride.
template <typename T>
struct Rows {
  T* first;
  std::int64_t stride;

  explicit Rows(const Columns& columns)
      : first(columns.tensor.data<std::remove_const_t<T>>() + columns.first),
        stride(columns.tensor.size(1)) {}

  __device__ T* at(std::int64_t row, std::int64_t column) const {
    return first + row * stride + column;
  }
  bool is_vectorizable(std::int64_t columns) const {
    return gpu::is_vectorizable(first, stride) && gpu::is_vectorizable(first, columns);
  }
};

template <typename Activation, int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Rows<T> y, Rows<const T> gate, Rows<const T> up, std::int64_t columns) {
  gpu::wait_for_launch_ahead();
  const std::int64_t n = blockIdx.x, column = gpu::item_of_row() * kWidth;
  if (column >= columns) return;
  float g[kWidth], u[kWidth], result[kWidth];
  gpu::load_all(g, gate.at(n, column));
  gpu::load_all(u, up.at(n, column));
#pragma unroll
  for (int i = 0; i < kWidth; ++i) result[i] = gpu::swiglu<Activation>(g[i], u[i]);
  gpu::store_all(y.at(n, column), result);
}

template <typename Activation, int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(Rows<T> dgate, Rows<T> dup, Rows<const T> dy, Rows<const T> gate,
                    Rows<const T> up, std::int64_t columns) {
  gpu::wait_for_launch_ahead();
  const std::int64_t n = blockIdx.x, column = gpu::item_of_row() * kWidth;
  if (column >= columns) return;
  float d[kWidth], g[kWidth], u[kWidth];
  gpu::load_all(d, dy.at(n, column));
  gpu::load_all(g, gate.at(n, column));
  gpu::load_all(u, up.at(n, column));
#pragma unroll
  for (int i = 0; i < kWidth; ++i) gpu::differentiate_swiglu<Activation>(g[i], u[i], d[i]);
  gpu::store_all(dgate.at(n, column), g);
  gpu::store_all(dup.at(n, column), u);
}

template <typename T, typename U>
struct WeighedBackward {
  Rows<T> y, dgate, dup;
  U* dweights;  // of each part
  Rows<const T> dy, gate, up;
  Slots<T> slots;
  std::int64_t columns;  // of a part
  int parts;
};

/// A block has one row and runs along it. Each result is rounded where its own operation would store it.
template <int kWidth, typename T, typename U>
__global__ void __launch_bounds__(kThreads) weighed_backward_kernel(WeighedBackward<T, U> x) {
  gpu::wait_for_launch_ahead();
  const std::int64_t slot = blockIdx.x, row = x.slots.place(slot);
  const float weight = x.slots.weight(slot);
  for (int part = 0; part < x.parts; ++part) {
    const std::int64_t first = part * x.columns;
    float dot = 0.0f;
    for (std::int64_t c = first + static_cast<std::int64_t>(threadIdx.x) * kWidth;
         c < first + x.columns; c += static_cast<std::int64_t>(blockDim.x) * kWidth) {
      float d[kWidth], g[kWidth], u[kWidth];
      gpu::load_all(d, x.dy.at(row, c));
      gpu::load_all(g, x.gate.at(row, c));
      gpu::load_all(u, x.up.at(row, c));
      gpu::differentiate_weighed_swiglu<T>(g, u, d, weight, dot);
      gpu::store_all(x.y.at(row, c), d);
      gpu::store_all(x.dgate.at(row, c), g);
      gpu::store_all(x.dup.at(row, c), u);
    }
    if (x.dweights == nullptr) continue;
    dot = gpu::block_reduce<gpu::Sum>(dot);
    if (threadIdx.x == 0) gpu::store(x.dweights[part * std::int64_t{gridDim.x} + slot], dot);
  }
}

/// Calls f(gpu::Silu()) or f(gpu::TanhGelu()), with an element of this dtype next to it.
template <typename F>
void visit(Gate activation, DType dtype, const F& f) {
  gpu::visit(dtype, [&](auto type) {
    activation == Gate::silu ? f(gpu::Silu(), type) : f(gpu::TanhGelu(), type);
  });
}

}  // namespace

void swiglu_forward(Out y, const Columns& gate, const Columns& up, Gate activation) {
  if (y.numel() == 0) return;
  visit(activation, y.dtype(), [&](auto a, auto type) {
    using A = decltype(a);
    using T = decltype(type);
    const std::int64_t columns = y.size(1);
    const Rows<T> to({y, 0, columns});
    const Rows<const T> g(gate), u(up);
    const auto launch = [&](auto kernel, int width) {
      const auto [blocks, threads] = gpu::row_grid(y.size(0), columns / width);
      gpu::launch_early(kernel, blocks, threads, 0, gpu::stream(), to, g, u, columns);
    };
    constexpr int kWidth = gpu::Vector<T>::kSize;
    const bool vectors =
        to.is_vectorizable(columns) && g.is_vectorizable(columns) && u.is_vectorizable(columns);
    vectors ? launch(forward_kernel<A, kWidth, T>, kWidth) : launch(forward_kernel<A, 1, T>, 1);
  });
}

void swiglu_backward(const Columns& dgate, const Columns& dup, const Tensor& dy,
                     const Columns& gate, const Columns& up, Gate activation) {
  if (dy.numel() == 0) return;
  visit(activation, dy.dtype(), [&](auto a, auto type) {
    using A = decltype(a);
    using T = decltype(type);
    const std::int64_t columns = dy.size(1);
    const Rows<T> dg(dgate), du(dup);
    const Rows<const T> from({dy, 0, columns}), g(gate), u(up);
    const auto launch = [&](auto kernel, int width) {
      const auto [blocks, threads] = gpu::row_grid(dy.size(0), columns / width);
      gpu::launch_early(kernel, blocks, threads, 0, gpu::stream(), dg, du, from, g, u, columns);
    };
    constexpr int kWidth = gpu::Vector<T>::kSize;
    const bool vectors = dg.is_vectorizable(columns) && du.is_vectorizable(columns) &&
                         from.is_vectorizable(columns) && g.is_vectorizable(columns) &&
                         u.is_vectorizable(columns);
    vectors ? launch(backward_kernel<A, kWidth, T>, kWidth) : launch(backward_kernel<A, 1, T>, 1);
  });
}

void weighed_swiglu_backward(Out y, Out dweights, const Columns& dgate, const Columns& dup,
                             const Tensor& dy, const Columns& gate, const Columns& up,
                             const Tensor& places, const Tensor& weights) {
  if (dy.size(0) == 0) return;
  gpu::visit(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto run = [&](auto* sums, std::int64_t parts) {
      using U = std::remove_pointer_t<decltype(sums)>;
      const std::int64_t columns = dy.size(1), width = columns / parts;
      const WeighedBackward<T, U> x{.y = Rows<T>({y, 0, columns}),
                                    .dgate = Rows<T>(dgate),
                                    .dup = Rows<T>(dup),
                                    .dweights = sums,
                                    .dy = Rows<const T>({dy, 0, columns}),
                                    .gate = Rows<const T>(gate),
                                    .up = Rows<const T>(up),
                                    .slots = Slots<T>(places, weights),
                                    .columns = width,
                                    .parts = static_cast<int>(parts)};
      const auto launch = [&](auto kernel, int vector) {
        const std::int64_t threads =
            std::clamp<std::int64_t>(round_up(width / vector, 32), 32, kThreads);
        gpu::launch_early(kernel, dim3(static_cast<unsigned>(dy.size(0))),
                          dim3(static_cast<unsigned>(threads)), 0, gpu::stream(), x);
      };
      constexpr int kWidth = gpu::Vector<T>::kSize;
      const bool vectors = width % kWidth == 0 && x.y.is_vectorizable(columns) &&
                           x.dgate.is_vectorizable(columns) && x.dup.is_vectorizable(columns) &&
                           x.dy.is_vectorizable(columns) && x.gate.is_vectorizable(columns) &&
                           x.up.is_vectorizable(columns);
      vectors ? launch(weighed_backward_kernel<kWidth, T, U>, kWidth)
              : launch(weighed_backward_kernel<1, T, U>, 1);
    };
    if (!dweights.defined()) return run(static_cast<T*>(nullptr), 1);
    if (dweights.rank() == 2) return run(dweights.data<T>(), 1);
    run(dweights.data<float>(), dweights.size(0));
  });
}

}  // namespace tessera::cuda
