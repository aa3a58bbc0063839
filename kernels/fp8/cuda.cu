// Traffic: fp8_quantize and fp8_expand move 3 bytes an element (of f32 5), fp8_transpose 2. The largest value is an
// integer maximum, so the order of blocks does not matter.
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/magnitude.h"
#include "kernels/cuda/numeric.h"
#include "kernels/fp8/grid.h"

namespace tessera::cuda {
namespace {

using gpu::kThreads;
using Vector = gpu::Vector<bfloat16>;

__device__ std::int64_t thread_of_grid() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

/// f(i) for the vectors of T that are a grid's width from one to the next, then g(i) for the elements behind them.
template <typename T, typename F, typename G>
__device__ void for_each_of_thread(std::int64_t vectors, std::int64_t count, const F& f,
                                   const G& g) {
  constexpr int kSize = gpu::Vector<T>::kSize;
  const std::int64_t first = thread_of_grid();
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t v = first; v < vectors; v += threads) f(v * kSize);
  for (std::int64_t i = vectors * kSize + first; i < count; i += threads) g(i);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(std::uint8_t* y, const T* x, std::int64_t vectors, std::int64_t count,
                    Fp8Grid grid, const float* scale_at, float* largest) {
  constexpr int kSize = gpu::Vector<T>::kSize;
  using Words = std::conditional_t<kSize == 8, uint2, unsigned>;
  const float scale = *scale_at;
  int most = 0;
  const auto code = [&](float given) {
    float value = given;
    if constexpr (std::is_same_v<T, float>) value = gpu::rounded<bfloat16>(given);
    most = max(most, gpu::bits_of_magnitude(value));
    return grid.nearest(scale * value);
  };
  for_each_of_thread<T>(
      vectors, count,
      [&](std::int64_t i) {
        const auto values = gpu::Vector<T>::load(x + i);
        unsigned words[kSize / 4] = {};
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
          words[j / 4] |= static_cast<unsigned>(code(values.values[j])) << (8 * (j % 4));
        }
        Words together;
        memcpy(&together, words, sizeof(Words));
        *reinterpret_cast<Words*>(y + i) = together;
      },
      [&](std::int64_t i) { y[i] = code(gpu::load(x[i])); });
  gpu::raise(largest, most);
}

__global__ void __launch_bounds__(kThreads)
    expand_kernel(bfloat16* x, const std::uint8_t* y, std::int64_t vectors, std::int64_t count,
                  Fp8Grid grid, const float* inverse_at) {
  const float inverse = *inverse_at;
  const auto value = [&](unsigned code) {
    return inverse * grid.value_of(static_cast<std::uint8_t>(code));
  };
  for_each_of_thread<bfloat16>(
      vectors, count,
      [&](std::int64_t i) {
        const uint2 raw = *reinterpret_cast<const uint2*>(y + i);
        const unsigned words[2] = {raw.x, raw.y};
        Vector values;
#pragma unroll
        for (int j = 0; j < Vector::kSize; ++j) {
          values.values[j] = value(words[j / 4] >> (8 * (j % 4)) & 0xffu);
        }
        values.store(x + i);
      },
      [&](std::int64_t i) { gpu::store(x[i], value(y[i])); });
}

/// A block transposes a square of kSquare x kSquare bytes.
constexpr int kSquare = 64, kWords = kSquare / 4;

/// A thread transposes 4 x 4 bytes in its registers, so that shared memory has whole words: [column][rows of 4]. One
/// more word in a row puts neighbours into different banks.
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(std::uint8_t* yt, const std::uint8_t* y, std::int64_t rows,
                     std::int64_t columns) {
  TESSERA_SHARED(unsigned, square, [kSquare][kWords + 1]);
  const std::int64_t row = std::int64_t{blockIdx.y} * kSquare;
  const std::int64_t column = std::int64_t{blockIdx.x} * kSquare;
  const int word = static_cast<int>(threadIdx.x) % kWords,
            four = static_cast<int>(threadIdx.x) / kWords;
  const auto address = [](const std::uint8_t* p) { return reinterpret_cast<std::uintptr_t>(p); };
  const bool whole = ((address(y) | address(yt)) % 4 == 0) && rows % 4 == 0 && columns % 4 == 0;
  unsigned transposed[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t r = row + 4 * four + i, c = column + 4 * word;
    unsigned bytes = 0;
    if (whole && r < rows && c < columns) {
      bytes = *reinterpret_cast<const unsigned*>(y + r * columns + c);
    } else {
      for (int j = 0; j < 4; ++j) {
        if (r < rows && c + j < columns) {
          bytes |= static_cast<unsigned>(y[r * columns + c + j]) << (8 * j);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) transposed[j] |= (bytes >> (8 * j) & 0xffu) << (8 * i);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) square[4 * word + j][four] = transposed[j];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t r = column + 4 * four + i, c = row + 4 * word;  // of yt
    const unsigned bytes = square[4 * four + i][word];
    if (whole && r < columns && c < rows) {
      *reinterpret_cast<unsigned*>(yt + r * rows + c) = bytes;
    } else {
      for (int j = 0; j < 4; ++j) {
        if (r < columns && c + j < rows) {
          yt[r * rows + c + j] = static_cast<std::uint8_t>(bytes >> (8 * j));
        }
      }
    }
  }
}
static_assert(kThreads == kWords * kWords);

__global__ void __launch_bounds__(kThreads)
    record_kernel(Fp8History history, float* largest, float* excess, const float* scales,
                  const float* limits) {
  const std::int64_t i = thread_of_grid();
  if (i >= history.count) return;
  const float now = largest[i];
  excess[i] = now * scales[i] / limits[i];
  history.enter(i, now);
  largest[i] = 0.0f;
}

__global__ void __launch_bounds__(kThreads)
    scales_kernel(float* scales, float* inverses, Fp8History history, const float* limits) {
  const std::int64_t i = thread_of_grid();
  if (i >= history.count) return;
  scales[i] = history.scale(i, limits[i]);
  inverses[i] = 1.0f / scales[i];
}

/// One thread per tensor.
template <typename... Parameters, typename... Arguments>
void launch_for(const Fp8History& history, void (*kernel)(Parameters...), Arguments... arguments) {
  if (history.count == 0) return;
  gpu::launch(kernel, dim3(gpu::blocks_for(history.count, kThreads)), dim3(kThreads), 0,
              gpu::stream(), arguments...);
}

std::uint8_t* codes_of(const Tensor& y) {
  return reinterpret_cast<std::uint8_t*>(y.raw());
}

/// Vectors of x's elements if both tensors are aligned to them.
std::int64_t vectors_of(const Tensor& x, const Tensor& y) {
  const auto address = [](const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.raw()); };
  const auto size = static_cast<std::int64_t>(16 / size_of(x.dtype()));
  return address(x) % 16 == 0 && address(y) % size == 0 ? x.numel() / size : 0;
}

/// A kernel over the elements of x [bf16 or f32] and y [8 bits].
template <typename... Parameters, typename... Arguments>
void launch_elements(const Tensor& x, void (*kernel)(Parameters...), Arguments... arguments) {
  if (x.numel() == 0) return;
  gpu::launch(kernel, dim3(gpu::blocks_for(x.numel(), 4 * Vector::kSize * kThreads, 4096)),
              dim3(kThreads), 0, gpu::stream(), arguments...);
}

template <typename T>
void quantize(Out y, const Tensor& x, const Tensor& scale, Out largest) {
  launch_elements(x, quantize_kernel<T>, codes_of(y), x.data<T>(), vectors_of(x, y), x.numel(),
                  Fp8Grid::of(y.dtype()), scale.data<float>(), largest.data<float>());
}

}  // namespace

void fp8_quantize(Out y, const Tensor& x, const Tensor& scale, Out largest) {
  x.dtype() == DType::f32 ? quantize<float>(y, x, scale, largest)
                          : quantize<bfloat16>(y, x, scale, largest);
}

void fp8_expand(Out x, const Tensor& y, const Tensor& inverse) {
  launch_elements(x, expand_kernel, x.data<bfloat16>(), codes_of(y), vectors_of(x, y), x.numel(),
                  Fp8Grid::of(y.dtype()), inverse.data<float>());
}

void fp8_transpose(Out yt, const Tensor& y) {
  const std::int64_t rows = y.size(0), columns = y.size(1);
  if (y.numel() == 0) return;
  const dim3 squares(gpu::blocks_for(columns, kSquare), gpu::blocks_for(rows, kSquare));
  gpu::launch(transpose_kernel, squares, dim3(kThreads), 0, gpu::stream(), codes_of(yt),
              codes_of(y), rows, columns);
}

void fp8_record(Out history, Out largest, Out excess, const Tensor& scales, const Tensor& limits) {
  const Fp8History past{history.data<float>(), history.size(0), history.size(1)};
  launch_for(past, record_kernel, past, largest.data<float>(), excess.data<float>(),
             scales.data<float>(), limits.data<float>());
}

void fp8_scales(Out scales, Out inverses, const Tensor& history, const Tensor& limits) {
  const Fp8History past{history.data<float>(), history.size(0), history.size(1)};
  launch_for(past, scales_kernel, scales.data<float>(), inverses.data<float>(), past,
             limits.data<float>());
}

}  // namespace tessera::cuda
