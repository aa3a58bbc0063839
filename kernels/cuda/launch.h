// Host code of .cu files: streams, grids and the choice of the element type.
#pragma once

#include "kernels/cuda/language.h"
#include "runtime/context.h"
#include "runtime/cuda/stream.h"
#include "runtime/dtype.h"
#include "runtime/integer.h"
#include "runtime/tensor.h"

namespace tessera::gpu {

/// The CUDA stream that this thread's kernels go to.
inline cudaStream_t stream() {
  return cuda::native(current_stream());
}

/// Calls `f(T{})` with the C++ type of a dtype that device code computes with. Returns false for
/// other dtypes (f64 is for the CPU only).
template <typename F>
bool visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      f(float{});
      return true;
    case DType::bf16:
      f(bfloat16{});
      return true;
    case DType::f16:
      f(float16{});
      return true;
    default:
      return false;
  }
}

/// The elements of a tensor, or null if it is undefined.
template <typename T>
T* pointer(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

/// Threads of a block that works element by element.
inline constexpr int kThreads = 256;

/// Blocks for `work` items at `per_block` each, at most `most`. Kernels loop for the rest.
inline unsigned blocks_for(std::int64_t work, std::int64_t per_block, std::int64_t most = 1 << 20) {
  const std::int64_t blocks = ceil_div(work, per_block);
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

}  // namespace tessera::gpu
