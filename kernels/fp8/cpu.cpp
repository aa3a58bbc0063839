#include <algorithm>
#include <array>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/magnitude.h"
#include "kernels/fp8/grid.h"

namespace tessera::cpu {
namespace {

/// f(format) with the format's numbers as constants.
template <typename F>
void visit_format(DType format, const F& f) {
  if (format == DType::e4m3) return f([] { return Fp8Grid::of(DType::e4m3); });
  f([] { return Fp8Grid::of(DType::e5m2); });
}

std::uint8_t* codes_of(const Tensor& y) {
  return reinterpret_cast<std::uint8_t*>(y.raw());
}

template <typename T>
void quantize(Out y, Out yt, const Tensor& x, const Tensor& scale_at, Out largest) {
  visit_format((y.defined() ? y : yt).dtype(), [&](auto grid) {
    const T* const from = x.data<T>();
    const auto value = [&](std::int64_t i) { return load(static_cast<bfloat16>(from[i])); };
    parallel_for(x.numel(), kElementwiseChunk, [&](std::int64_t begin, std::int64_t end) {
      const float scale = *scale_at.data<float>();
      std::int32_t most = 0;
#pragma omp simd reduction(max : most)
      for (std::int64_t i = begin; i < end; ++i) {
        most = std::max(most, bits_of_magnitude(value(i)));
      }
      raise(*largest.data<float>(), most);
      if (y.defined()) {
        std::uint8_t* const to = codes_of(y);
        for (std::int64_t i = begin; i < end; ++i) to[i] = grid().nearest(scale * value(i));
      }
      if (!yt.defined()) return;
      const std::int64_t rows = x.size(0), columns = x.size(1);
      for (std::int64_t i = begin; i < end; ++i) {
        codes_of(yt)[i % columns * rows + i / columns] = grid().nearest(scale * value(i));
      }
    });
  });
}

constexpr std::int64_t kSide = kFp8Block;

/// A tile of at most 128 x 128 numbers of x, beginning at a row and a column.
struct Tile {
  std::int64_t row, rows, column, columns;
  std::array<float, kSide * kSide> values;
  std::array<std::int32_t, kSide> most_of_row, most_of_column;

  void read(const Tensor& x) {
    most_of_row.fill(0);
    most_of_column.fill(0);
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto* const from = x.data<bfloat16>() + (row + r) * x.size(1) + column;
      float* const to = values.data() + r * kSide;
      std::int32_t most = 0;
#pragma omp simd reduction(max : most)
      for (std::int64_t c = 0; c < columns; ++c) {
        to[c] = load(from[c]);
        const std::int32_t bits = bits_for_scale(to[c]);
        most_of_column[c] = std::max(most_of_column[c], bits);
        most = std::max(most, bits);
      }
      most_of_row[r] = most;
    }
  }
  /// All numbers share a scale.
  void join() {
    const std::int32_t most = *std::max_element(most_of_row.begin(), most_of_row.end());
    most_of_row.fill(most);
    most_of_column.fill(most);
  }
};

/// The codes of a tile's row.
template <typename Grid>
void round_row(std::uint8_t* to, const Tile& tile, std::int64_t r, const float* scales,
               const Grid& grid) {
  const float* const from = tile.values.data() + r * kSide;
  for (std::int64_t c = 0; c < tile.columns; ++c) to[c] = grid().nearest(scales[c] * from[c]);
}

template <typename Grid>
void write_rows(Out y, Out inverse, const Tile& tile, const Fp8ScalePlaces& places,
                const Grid& grid) {
  std::array<float, kSide> scales;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const float scale = scale_of_block(tile.most_of_row[r], grid().largest);
    scales.fill(scale);
    round_row(codes_of(y) + (tile.row + r) * y.size(1) + tile.column, tile, r, scales.data(), grid);
    inverse.data<float>()[places.at(tile.row + r, tile.column)] = 1.0f / scale;
  }
}

/// The tile is in this part of x's rows.
template <typename Grid>
void write_columns(Out yt, Out inverse, std::int64_t part, const Tile& tile,
                   const Fp8ScalePlaces& places, const Grid& grid) {
  const std::int64_t depth = yt.size(-1), row = tile.row - part * depth;
  const std::int64_t scales_of_part = yt.rank() == 3 ? inverse.numel() / yt.size(0) : 0;
  std::array<float, kSide> scales;
  for (std::int64_t c = 0; c < tile.columns; ++c) {
    scales[c] = scale_of_block(tile.most_of_column[c], grid().largest);
    inverse.data<float>()[part * scales_of_part + places.at(tile.column + c, row)] =
        1.0f / scales[c];
  }
  std::array<std::uint8_t, kSide * kSide> codes;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    round_row(codes.data() + r * kSide, tile, r, scales.data(), grid);
  }
  for (std::int64_t c = 0; c < tile.columns; ++c) {
    std::uint8_t* const to = codes_of(yt) + (part * yt.size(-2) + tile.column + c) * depth + row;
    for (std::int64_t r = 0; r < tile.rows; ++r) to[r] = codes[r * kSide + c];
  }
}

}  // namespace

void fp8_quantize(Out y, Out yt, const Tensor& x, const Tensor& scale, Out largest) {
  x.dtype() == DType::f32 ? quantize<float>(y, yt, x, scale, largest)
                          : quantize<bfloat16>(y, yt, x, scale, largest);
}

void fp8_expand(Out x, const Tensor& y, const Tensor& inverse_at) {
  visit_format(y.dtype(), [&](auto grid) {
    auto* const to = x.data<bfloat16>();
    const std::uint8_t* const from = codes_of(y);
    parallel_for(x.numel(), kElementwiseChunk, [&](std::int64_t begin, std::int64_t end) {
      const float inverse = *inverse_at.data<float>();
      for (std::int64_t i = begin; i < end; ++i) store(to[i], inverse * grid().value_of(from[i]));
    });
  });
}

void fp8_quantize_blocks(Out y, Out inverse, Out yt, Out inverse_t, const Tensor& x,
                         Fp8Blocks blocks) {
  visit_format((y.defined() ? y : yt).dtype(), [&](auto grid) {
    const std::int64_t N = x.size(0), C = x.size(1);
    const std::int64_t rows = yt.defined() && yt.rank() == 3 ? yt.size(2) : N;
    const std::int64_t down = ceil_div(rows, kSide), across = ceil_div(C, kSide);
    const auto places = Fp8ScalePlaces::of(blocks, N, C),
               places_t = Fp8ScalePlaces::of(blocks, C, rows);
    if (blocks == Fp8Blocks::squares) {  // there are places behind the last square
      for (const Tensor* all : {&inverse, &inverse_t}) {
        if (all->defined()) std::fill_n(all->data<float>(), all->numel(), 1.0f);
      }
    }
    const std::int64_t parts = rows == 0 ? 0 : N / rows;
    parallel_for(parts * down * across, 1, [&](std::int64_t begin, std::int64_t end) {
      Tile tile;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t part = i / (down * across), row = i / across % down * kSide;
        tile.row = part * rows + row;
        tile.rows = std::min(kSide, rows - row);
        tile.column = i % across * kSide;
        tile.columns = std::min(kSide, C - tile.column);
        tile.read(x);
        if (blocks == Fp8Blocks::squares) tile.join();
        if (y.defined()) write_rows(y, inverse, tile, places, grid);
        if (yt.defined()) write_columns(yt, inverse_t, part, tile, places_t, grid);
      }
    });
  });
}

void fp8_expand_blocks(Out x, const Tensor& y, const Tensor& inverse, Fp8Blocks blocks,
                       Transpose transposed) {
  const std::int64_t rows = y.size(0), columns = y.size(1);
  const auto places = transposed == Transpose::yes
                          ? Fp8ScalePlaces::of(blocks, columns, rows).transposed()
                          : Fp8ScalePlaces::of(blocks, rows, columns);
  visit_format(y.dtype(), [&](auto grid) {
    parallel_for(rows, 1, [&](std::int64_t begin, std::int64_t end) {
      const float* const inverses = inverse.data<float>();
      for (std::int64_t r = begin; r < end; ++r) {
        auto* const to = x.data<bfloat16>() + r * columns;
        const std::uint8_t* const from = codes_of(y) + r * columns;
        for (std::int64_t c = 0; c < columns; ++c) {
          store(to[c], inverses[places.at(r, c)] * grid().value_of(from[c]));
        }
      }
    });
  });
}

void fp8_transpose(Out yt, const Tensor& y) {
  const std::int64_t rows = y.size(0), columns = y.size(1);
  parallel_for(columns, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t column = begin; column < end; ++column) {
      for (std::int64_t row = 0; row < rows; ++row) {
        codes_of(yt)[column * rows + row] = codes_of(y)[row * columns + column];
      }
    }
  });
}

void fp8_record(Out history, Out largest, Out excess, const Tensor& scales, const Tensor& limits) {
  const Fp8History past{history.data<float>(), history.size(0), history.size(1)};
  parallel_for(past.count, kElementwiseChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float& now = largest.data<float>()[i];
      excess.data<float>()[i] = now * scales.data<float>()[i] / limits.data<float>()[i];
      past.enter(i, now);
      now = 0.0f;
    }
  });
}

void fp8_scales(Out scales, Out inverses, const Tensor& history, const Tensor& limits) {
  const Fp8History past{history.data<float>(), history.size(0), history.size(1)};
  parallel_for(past.count, kElementwiseChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float scale = past.scale(i, limits.data<float>()[i]);
      scales.data<float>()[i] = scale;
      inverses.data<float>()[i] = 1.0f / scale;
    }
  });
}

}  // namespace tessera::cpu
