// Traffic: fp8_quantize and fp8_expand move 3 bytes an element (of f32 5), fp8_quantize with both results 4, and
// fp8_transpose 2. The largest value is an integer maximum, so the order of blocks does not matter.
// fp8_quantize_blocks reads a tile once to registers, so it moves as many bytes, and 1/32 of a byte of scales.
#include <type_traits>

#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/magnitude.h"
#include "kernels/cuda/multi_tensor.h"
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

/// From values of T to codes, and the largest magnitude of a thread.
template <typename T>
struct Rounding {
  Fp8Grid grid;
  float scale;
  int most = 0;

  __device__ std::uint8_t code(float given) {
    float value = given;
    if constexpr (std::is_same_v<T, float>) value = gpu::rounded<bfloat16>(given);
    most = max(most, gpu::bits_of_magnitude(value));
    return grid.nearest(scale * value);
  }
  __device__ unsigned codes(const float* four) {
    unsigned word = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) word |= static_cast<unsigned>(code(four[j])) << (8 * j);
    return word;
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(std::uint8_t* y, const T* x, std::int64_t vectors, std::int64_t count,
                    Fp8Grid grid, const float* scale_at, float* largest) {
  gpu::wait_for_launch_ahead();
  constexpr int kSize = gpu::Vector<T>::kSize;
  using Words = std::conditional_t<kSize == 8, uint2, unsigned>;
  Rounding<T> rounding{grid, *scale_at};
  for_each_of_thread<T>(
      vectors, count,
      [&](std::int64_t i) {
        const auto values = gpu::Vector<T>::load(x + i);
        unsigned words[kSize / 4];
#pragma unroll
        for (int j = 0; j < kSize / 4; ++j) words[j] = rounding.codes(values.values + 4 * j);
        Words together;
        memcpy(&together, words, sizeof(Words));
        *reinterpret_cast<Words*>(y + i) = together;
      },
      [&](std::int64_t i) { y[i] = rounding.code(gpu::load(x[i])); });
  gpu::raise(largest, rounding.most);
}

__global__ void __launch_bounds__(kThreads)
    expand_kernel(bfloat16* x, const std::uint8_t* y, std::int64_t vectors, std::int64_t count,
                  Fp8Grid grid, const float* inverse_at) {
  gpu::wait_for_launch_ahead();
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

/// A block transposes squares of kSquare x kSquare bytes.
constexpr int kSquare = 64, kWords = kSquare / 4;
static_assert(kThreads == kWords * kWords);

struct Matrix {
  std::int64_t rows, columns;
  /// Whether four neighbours in a row can be read and written as one, in the matrix and in the transposed one.
  bool whole;

  /// Four bytes from (r, c) on: four() is all of them, and one(c) one. Those outside are 0.
  template <typename Four, typename One>
  __device__ unsigned bytes(std::int64_t r, std::int64_t c, const Four& four,
                            const One& one) const {
    if (r >= rows || c >= columns) return 0;
    if (whole) return four();
    unsigned bytes = 0;
    for (int j = 0; j < 4; ++j) {
      if (c + j < columns) bytes |= static_cast<unsigned>(one(c + j)) << (8 * j);
    }
    return bytes;
  }
  /// Four numbers of x from (r, c) on. Those outside are 0.
  __device__ gpu::Four<bfloat16> four(const bfloat16* x, std::int64_t r, std::int64_t c) const {
    gpu::Four<bfloat16> four = {};
    if (r >= rows || c >= columns) return four;
    const bfloat16* const from = x + r * columns + c;
    if (whole) return gpu::Four<bfloat16>::load(from);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (c + j < columns) four.values[j] = from[j];
    }
    return four;
  }
  __device__ void set_bytes(std::uint8_t* y, std::int64_t r, std::int64_t c, unsigned bytes) const {
    if (r >= rows || c >= columns) return;
    if (whole) {
      *reinterpret_cast<unsigned*>(y + r * columns + c) = bytes;
      return;
    }
    for (int j = 0; j < 4; ++j) {
      if (c + j < columns) y[r * columns + c + j] = static_cast<std::uint8_t>(bytes >> (8 * j));
    }
  }
};

/// word(r, c): four bytes from (r, c) on. A thread transposes 4 x 4 bytes in its registers, so that shared memory has
/// whole words: [column][rows of 4]. One more word in a row puts neighbours into different banks.
template <typename Word>
__device__ void transpose(std::uint8_t* yt, const Matrix& matrix, const Word& word) {
  TESSERA_SHARED(unsigned, square, [kSquare][kWords + 1]);
  const int along = static_cast<int>(threadIdx.x) % kWords,
            four = static_cast<int>(threadIdx.x) / kWords;
  const Matrix transposed{matrix.columns, matrix.rows, matrix.whole};
  const std::int64_t across = (matrix.columns + kSquare - 1) / kSquare;
  const std::int64_t squares = (matrix.rows + kSquare - 1) / kSquare * across;
  for (std::int64_t at = blockIdx.x; at < squares; at += gridDim.x) {
    const std::int64_t row = at / across * kSquare, column = at % across * kSquare;
    unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned bytes = word(row + 4 * four + i, column + 4 * along);
#pragma unroll
      for (int j = 0; j < 4; ++j) words[j] |= (bytes >> (8 * j) & 0xffu) << (8 * i);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) square[4 * along + j][four] = words[j];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      transposed.set_bytes(yt, column + 4 * four + i, row + 4 * along, square[4 * four + i][along]);
    }
    __syncthreads();  // before the next square
  }
}

__global__ void __launch_bounds__(kThreads)
    transpose_kernel(std::uint8_t* yt, const std::uint8_t* y, Matrix matrix) {
  gpu::wait_for_launch_ahead();
  transpose(yt, matrix, [&](std::int64_t r, std::int64_t c) {
    const std::uint8_t* const row = y + r * matrix.columns;
    const auto four = [&] { return *reinterpret_cast<const unsigned*>(row + c); };
    return matrix.bytes(r, c, four, [&](std::int64_t at) { return row[at]; });
  });
}

/// y may be null.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    quantize_transposed_kernel(std::uint8_t* y, std::uint8_t* yt, const T* x, Matrix matrix,
                               Fp8Grid grid, const float* scale_at, float* largest) {
  gpu::wait_for_launch_ahead();
  Rounding<T> rounding{grid, *scale_at};
  transpose(yt, matrix, [&](std::int64_t r, std::int64_t c) {
    const T* const row = x + r * matrix.columns;
    const auto four = [&] { return rounding.codes(gpu::Quad<T>::load(row + c).values); };
    const auto one = [&](std::int64_t at) { return rounding.code(gpu::load(row[at])); };
    const unsigned bytes = matrix.bytes(r, c, four, one);
    if (y != nullptr) matrix.set_bytes(y, r, c, bytes);
    return bytes;
  });
  gpu::raise(largest, rounding.most);
}

/// 8-bit matrices and their inverse scales. Null: not wanted.
struct Blocks {
  std::uint8_t* numbers;
  float* inverses;
  Fp8ScalePlaces places;
};

constexpr int kTile = kFp8Block, kRowsOfWarp = kTile / (kThreads / 32);
static_assert(kTile == 4 * 32 && kRowsOfWarp % 4 == 0);

/// The inverse scale of a square, and 1 in the places behind the last square of its row.
__device__ void set_square(const Blocks& y, std::int64_t row, std::int64_t column,
                           std::int64_t columns, float inverse) {
  float* const of_row = y.inverses + y.places.at(row, 0);
  std::int64_t at = column / kTile;
  of_row[at] = inverse;
  if (column + kTile < columns) return;
  while (++at < y.places.row_stride) of_row[at] = 1.0f;
}

/// A block of threads rounds tiles of 128 x 128. A warp has 16 rows of a tile, and a thread four neighbours of each.
/// `part`: one of `parts` parts of x's rows. yt has a matrix for each of them, with so many scales.
template <bool kSquares>
__global__ void __launch_bounds__(kThreads)
    quantize_blocks_kernel(Blocks y, Blocks yt, const bfloat16* x, Matrix part, std::int64_t parts,
                           std::int64_t scales_of_part, Fp8Grid grid) {
  gpu::wait_for_launch_ahead();
  TESSERA_SHARED(int, most_of, [kThreads / 32][kTile]);
  TESSERA_SHARED(unsigned, turned, [kTile][kTile / 4 + 1]);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t across = (part.columns + kTile - 1) / kTile,
                     down = (part.rows + kTile - 1) / kTile;
  const Matrix transposed{part.columns, part.rows, part.whole};
  for (std::int64_t at = blockIdx.x; at < parts * down * across; at += gridDim.x) {
    const std::int64_t number = at / (down * across), first = number * part.rows;
    const std::int64_t row = at / across % down * kTile, column = at % across * kTile;
    const std::int64_t row_of_warp = row + kRowsOfWarp * warp, c = column + 4 * lane;
    gpu::Four<bfloat16> values[kRowsOfWarp];
    const auto value = [&](int i, int j) { return gpu::load(values[i].values[j]); };
    int of_column[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      values[i] = part.four(x + first * part.columns, row_of_warp + i, c);
#pragma unroll
      for (int j = 0; j < 4; ++j) of_column[j] = max(of_column[j], bits_for_scale(value(i, j)));
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) most_of[warp][4 * lane + j] = of_column[j];
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) {
#pragma unroll
      for (int j = 0; j < 4; ++j) of_column[j] = max(of_column[j], most_of[w][4 * lane + j]);
    }
    const auto most_of_four = [](const int* bits) {
      return max(max(bits[0], bits[1]), max(bits[2], bits[3]));
    };
    const int of_tile = kSquares ? gpu::warp_most(most_of_four(of_column)) : 0;
    if (y.numbers != nullptr) {
      float inverse = 1.0f;  // of row `lane` of the warp's
#pragma unroll
      for (int i = 0; i < kRowsOfWarp; ++i) {
        int most = of_tile;
        if constexpr (!kSquares) {
          int bits[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) bits[j] = bits_for_scale(value(i, j));
          most = gpu::warp_most(most_of_four(bits));
        }
        const float scale = scale_of_block(most, grid.largest);
        inverse = lane == i ? 1.0f / scale : inverse;
        unsigned word = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          word |= static_cast<unsigned>(grid.nearest(scale * value(i, j))) << (8 * j);
        }
        part.set_bytes(y.numbers + first * part.columns, row_of_warp + i, c, word);
      }
      if (!kSquares && lane < kRowsOfWarp && row_of_warp + lane < part.rows) {
        y.inverses[y.places.at(first + row_of_warp + lane, column)] = inverse;
      }
    }
    if (yt.numbers != nullptr) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float scale = scale_of_block(kSquares ? of_tile : of_column[j], grid.largest);
#pragma unroll
        for (int i = 0; i < kRowsOfWarp; i += 4) {
          unsigned word = 0;
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            word |= static_cast<unsigned>(grid.nearest(scale * value(i + k, j))) << (8 * k);
          }
          turned[4 * lane + j][(kRowsOfWarp * warp + i) / 4] = word;
        }
        if (!kSquares && warp == 0 && c + j < part.columns) {
          yt.inverses[number * scales_of_part + yt.places.at(c + j, row)] = 1.0f / scale;
        }
      }
    }
    __syncthreads();  // before `turned` is read, and the next tile writes `most_of`
    if (yt.numbers != nullptr) {
#pragma unroll
      for (int i = 0; i < kRowsOfWarp; ++i) {
        const int turned_row = kRowsOfWarp * warp + i;
        transposed.set_bytes(yt.numbers + first * part.columns, column + turned_row, row + 4 * lane,
                             turned[turned_row][lane]);
      }
    }
    if (kSquares && threadIdx.x == 0) {
      const float inverse = 1.0f / scale_of_block(of_tile, grid.largest);
      if (y.numbers != nullptr) set_square(y, row, column, part.columns, inverse);
      if (yt.numbers != nullptr) set_square(yt, column, row, part.rows, inverse);
    }
  }
}

/// A thread expands four neighbours of a row.
__global__ void __launch_bounds__(kThreads)
    expand_blocks_kernel(bfloat16* x, const std::uint8_t* y, Matrix matrix, Fp8Grid grid,
                         const float* inverses, Fp8ScalePlaces places) {
  gpu::wait_for_launch_ahead();
  const std::int64_t quads = (matrix.columns + 3) / 4;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t at = thread_of_grid(); at < matrix.rows * quads; at += threads) {
    const std::int64_t r = at / quads, c = at % quads * 4;
    const std::uint8_t* const from = y + r * matrix.columns;
    const unsigned bytes = matrix.bytes(
        r, c, [&] { return *reinterpret_cast<const unsigned*>(from + c); },
        [&](std::int64_t i) { return from[i]; });
    gpu::Quad<bfloat16> four;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::int64_t column = c + j < matrix.columns ? c + j : c;
      four.values[j] = inverses[places.at(r, column)] *
                       grid.value_of(static_cast<std::uint8_t>(bytes >> (8 * j)));
    }
    bfloat16* const to = x + r * matrix.columns + c;
    if (matrix.whole) {
      four.store(to);
    } else {
      for (int j = 0; j < 4 && c + j < matrix.columns; ++j) gpu::store(to[j], four.values[j]);
    }
  }
}

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

/// To so many elements.
bool is_aligned(const Tensor& t, std::size_t elements) {
  return reinterpret_cast<std::uintptr_t>(t.raw()) % (elements * size_of(t.dtype())) == 0;
}

/// Vectors of x's elements if both tensors are aligned to them.
std::int64_t vectors_of(const Tensor& x, const Tensor& y) {
  const std::size_t size = 16 / size_of(x.dtype());
  return is_aligned(x, size) && is_aligned(y, size) ? x.numel() / static_cast<std::int64_t>(size)
                                                    : 0;
}

/// A kernel over the elements of x [bf16 or f32] and y [8 bits].
template <typename... Parameters, typename... Arguments>
void launch_elements(const Tensor& x, void (*kernel)(Parameters...), Arguments... arguments) {
  if (x.numel() == 0) return;
  gpu::launch_early(kernel, dim3(gpu::blocks_for(x.numel(), 4 * Vector::kSize * kThreads, 4096)),
                    dim3(kThreads), 0, gpu::stream(), arguments...);
}

/// The extents of x, and whether x and the others, which may be undefined, are aligned.
Matrix matrix_of(const Tensor& x, std::initializer_list<Tensor> others) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  bool whole = rows % 4 == 0 && columns % 4 == 0 && is_aligned(x, 4);
  for (const Tensor& other : others) whole &= !other.defined() || is_aligned(other, 4);
  return {rows, columns, whole};
}

/// A kernel over the squares of x.
template <typename... Parameters, typename... Arguments>
void launch_squares(const Tensor& x, void (*kernel)(Parameters...), Arguments... arguments) {
  if (x.numel() == 0) return;
  const std::int64_t squares = ceil_div(x.size(0), kSquare) * ceil_div(x.size(1), kSquare);
  gpu::launch_early(kernel, dim3(gpu::blocks_for(squares, 1, 4096)), dim3(kThreads), 0,
                    gpu::stream(), arguments...);
}

template <typename T>
void quantize(Out y, Out yt, const Tensor& x, const Tensor& scale, Out largest) {
  const Fp8Grid grid = Fp8Grid::of((y.defined() ? y : yt).dtype());
  if (yt.defined()) {
    launch_squares(x, quantize_transposed_kernel<T>, y.defined() ? codes_of(y) : nullptr,
                   codes_of(yt), x.data<T>(), matrix_of(x, {y, yt}), grid, scale.data<float>(),
                   largest.data<float>());
  } else {
    launch_elements(x, quantize_kernel<T>, codes_of(y), x.data<T>(), vectors_of(x, y), x.numel(),
                    grid, scale.data<float>(), largest.data<float>());
  }
}

}  // namespace

void fp8_quantize(Out y, Out yt, const Tensor& x, const Tensor& scale, Out largest) {
  x.dtype() == DType::f32 ? quantize<float>(y, yt, x, scale, largest)
                          : quantize<bfloat16>(y, yt, x, scale, largest);
}

void fp8_expand(Out x, const Tensor& y, const Tensor& inverse) {
  launch_elements(x, expand_kernel, x.data<bfloat16>(), codes_of(y), vectors_of(x, y), x.numel(),
                  Fp8Grid::of(y.dtype()), inverse.data<float>());
}

void fp8_quantize_blocks(Out y, Out inverse, Out yt, Out inverse_t, const Tensor& x,
                         Fp8Blocks blocks) {
  if (x.numel() == 0) return;
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const std::int64_t parts = yt.defined() && yt.rank() == 3 ? yt.size(0) : 1;
  const Fp8Grid grid = Fp8Grid::of((y.defined() ? y : yt).dtype());
  const auto blocks_of = [&](Out numbers, Out inverses, std::int64_t own_rows, std::int64_t depth) {
    return numbers.defined() ? Blocks{codes_of(numbers), inverses.data<float>(),
                                      Fp8ScalePlaces::of(blocks, own_rows, depth)}
                             : Blocks{};
  };
  Matrix part = matrix_of(x, {y, yt});
  part.rows = rows / parts;
  part.whole = part.whole && part.rows % 4 == 0;
  const std::int64_t tiles = parts * ceil_div(part.rows, kTile) * ceil_div(columns, kTile);
  gpu::launch_early(
      blocks == Fp8Blocks::squares ? quantize_blocks_kernel<true> : quantize_blocks_kernel<false>,
      dim3(gpu::blocks_for(tiles, 1, 4096)), dim3(kThreads), 0, gpu::stream(),
      blocks_of(y, inverse, rows, columns), blocks_of(yt, inverse_t, columns, part.rows),
      x.data<bfloat16>(), part, parts, yt.defined() ? inverse_t.numel() / parts : std::int64_t{0},
      grid);
}

void fp8_expand_blocks(Out x, const Tensor& y, const Tensor& inverse, Fp8Blocks blocks,
                       Transpose transposed) {
  const std::int64_t rows = y.size(0), columns = y.size(1);
  const auto places = transposed == Transpose::yes
                          ? Fp8ScalePlaces::of(blocks, columns, rows).transposed()
                          : Fp8ScalePlaces::of(blocks, rows, columns);
  launch_elements(x, expand_blocks_kernel, x.data<bfloat16>(), codes_of(y), matrix_of(x, {y}),
                  Fp8Grid::of(y.dtype()), inverse.data<float>(), places);
}

void fp8_transpose(Out yt, const Tensor& y) {
  launch_squares(y, transpose_kernel, codes_of(yt), codes_of(y), matrix_of(y, {yt}));
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
