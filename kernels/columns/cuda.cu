// The copies of columns: a thread takes 16 bytes, or one element, and a block a slice of one row.
//
// Traffic: every element of the columns read and written once.
#include "kernels/columns/op.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/row_grid.h"

namespace tessera::cuda {
namespace {

using gpu::kThreads;

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    copy_columns_kernel(T* y, const T* x, std::int64_t stride, std::int64_t columns) {
  const std::int64_t n = blockIdx.x, column = gpu::item_of_row() * kWidth;
  if (column >= columns) return;
  float values[kWidth];
  gpu::load_all(values, x + n * stride + column);
  gpu::store_all(y + n * columns + column, values);
}

template <typename T, typename X>
__global__ void __launch_bounds__(kThreads)
    set_columns_kernel(T* y, const X* x, std::int64_t stride, std::int64_t columns) {
  const std::int64_t n = blockIdx.x, column = gpu::item_of_row();
  if (column >= columns) return;
  gpu::store(y[n * stride + column], gpu::load(x[n * columns + column]));
}

}  // namespace

void copy_columns(Out y, const Columns& x) {
  if (y.numel() == 0) return;
  gpu::visit(y.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::int64_t columns = x.count, stride = x.tensor.size(1);
    T* const to = y.data<T>();
    const T* const from = x.tensor.data<T>() + x.first;
    const auto launch = [&](auto kernel, int width) {
      const auto [blocks, threads] = gpu::row_grid(y.size(0), columns / width);
      gpu::launch(kernel, blocks, threads, 0, gpu::stream(), to, from, stride, columns);
    };
    constexpr int kWidth = gpu::Vector<T>::kSize;
    const bool vectors = gpu::is_vectorizable(to, columns) && gpu::is_vectorizable(from, stride) &&
                         gpu::is_vectorizable(from, columns);
    vectors ? launch(copy_columns_kernel<kWidth, T>, kWidth) : launch(copy_columns_kernel<1, T>, 1);
  });
}

void set_columns(const Columns& y, const Tensor& x) {
  if (x.numel() == 0) return;
  gpu::visit(y.tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto launch = [&](auto kernel, const auto* from) {
      const auto [blocks, threads] = gpu::row_grid(x.size(0), y.count);
      gpu::launch(kernel, blocks, threads, 0, gpu::stream(), y.tensor.data<T>() + y.first, from,
                  y.tensor.size(1), y.count);
    };
    if (x.dtype() == y.tensor.dtype()) {
      launch(set_columns_kernel<T, T>, x.data<T>());
    } else {
      launch(set_columns_kernel<T, float>, x.data<float>());
    }
  });
}

}  // namespace tessera::cuda
