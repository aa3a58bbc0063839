// SwiGLU: a thread takes 16 bytes of every tensor, a block a slice of one row.
//
// Traffic in 16 bits: forward reads gate and up and writes y, 6NF bytes; backward reads dy, gate
// and up and writes dgate and dup, 10NF bytes. Backward computes s again: two slow instructions
// (exp, reciprocal) an element. Saving s would cost 2NF bytes each way.
#include <type_traits>

#include "kernels/cuda/numeric.h"
#include "kernels/cuda/row_grid.h"
#include "kernels/cuda/sigmoid.h"
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

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Rows<T> y, Rows<const T> gate, Rows<const T> up, std::int64_t columns) {
  const std::int64_t n = blockIdx.x, column = gpu::item_of_row() * kWidth;
  if (column >= columns) return;
  float g[kWidth], u[kWidth], result[kWidth];
  gpu::load_all(g, gate.at(n, column));
  gpu::load_all(u, up.at(n, column));
#pragma unroll
  for (int i = 0; i < kWidth; ++i) result[i] = gpu::swiglu(g[i], u[i]);
  gpu::store_all(y.at(n, column), result);
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(Rows<T> dgate, Rows<T> dup, Rows<const T> dy, Rows<const T> gate,
                    Rows<const T> up, std::int64_t columns) {
  const std::int64_t n = blockIdx.x, column = gpu::item_of_row() * kWidth;
  if (column >= columns) return;
  float d[kWidth], g[kWidth], u[kWidth];
  gpu::load_all(d, dy.at(n, column));
  gpu::load_all(g, gate.at(n, column));
  gpu::load_all(u, up.at(n, column));
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const auto [s, complement] = gpu::sigmoid_pair(g[i]);
    const float of_gate = d[i] * u[i] * (s * (1.0f + g[i] * complement));
    u[i] = d[i] * (g[i] * s);
    g[i] = of_gate;
  }
  gpu::store_all(dgate.at(n, column), g);
  gpu::store_all(dup.at(n, column), u);
}

}  // namespace

void swiglu_forward(Out y, const Columns& gate, const Columns& up) {
  if (y.numel() == 0) return;
  gpu::visit(y.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::int64_t columns = y.size(1);
    const Rows<T> to({y, 0, columns});
    const Rows<const T> g(gate), u(up);
    const auto launch = [&](auto kernel, int width) {
      const auto [blocks, threads] = gpu::row_grid(y.size(0), columns / width);
      gpu::launch(kernel, blocks, threads, 0, gpu::stream(), to, g, u, columns);
    };
    constexpr int kWidth = gpu::Vector<T>::kSize;
    const bool vectors =
        to.is_vectorizable(columns) && g.is_vectorizable(columns) && u.is_vectorizable(columns);
    vectors ? launch(forward_kernel<kWidth, T>, kWidth) : launch(forward_kernel<1, T>, 1);
  });
}

void swiglu_backward(const Columns& dgate, const Columns& dup, const Tensor& dy,
                     const Columns& gate, const Columns& up) {
  if (dy.numel() == 0) return;
  gpu::visit(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::int64_t columns = dy.size(1);
    const Rows<T> dg(dgate), du(dup);
    const Rows<const T> from({dy, 0, columns}), g(gate), u(up);
    const auto launch = [&](auto kernel, int width) {
      const auto [blocks, threads] = gpu::row_grid(dy.size(0), columns / width);
      gpu::launch(kernel, blocks, threads, 0, gpu::stream(), dg, du, from, g, u, columns);
    };
    constexpr int kWidth = gpu::Vector<T>::kSize;
    const bool vectors = dg.is_vectorizable(columns) && du.is_vectorizable(columns) &&
                         from.is_vectorizable(columns) && g.is_vectorizable(columns) &&
                         u.is_vectorizable(columns);
    vectors ? launch(backward_kernel<kWidth, T>, kWidth) : launch(backward_kernel<1, T>, 1);
  });
}

}  // namespace tessera::cuda
