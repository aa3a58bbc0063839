#include "runtime/emulation/device/warpgroup_tiles.h"

#include <array>
#include <cmath>
#include <cstring>

#include "runtime/emulation/device/arithmetic.h"
#include "runtime/emulation/device/block.h"
#include "runtime/emulation/device/narrow_sum.h"
#include "runtime/emulation/tile_product.h"

namespace tessera::emulation {
namespace {

constexpr int kRows = kWarpgroupRows, kDepth = kWarpgroupDepth;
constexpr int kSwizzledRows = 8;
constexpr int kChunk = 8;  // elements of 16 bytes: the swizzle moves them together

using Chunk = std::uint16_t __attribute__((vector_size(2 * kChunk)));

/// Rows of a panel as the engines see them, without the swizzle.
class Rows {
 public:
  /// `count` rows from the one on in which the panel begins. All are in one array of shared memory.
  Rows(const Panel& panel, int count)
      : row_(reinterpret_cast<std::uintptr_t>(panel.start) / kPanelRowBytes),
        chunk_(static_cast<std::size_t>(panel.start - first_row(panel)) / sizeof(Chunk)),
        view_(seen_by_engines(first_row(panel))) {
    const auto bytes = static_cast<std::size_t>(count * kPanelRowBytes);
    if (!block.shared().contains(first_row(panel), bytes)) {
      block.fail("wgmma reads beyond an array in shared memory");
    }
    using Copied = SharedMemory::Copied;
    const Copied copied = block.shared().copied(first_row(panel), bytes);
    if (copied == Copied::in_flight) {
      block.fail("wgmma reads what a cp.async has yet to write: its thread has not waited for it");
    }
    if (copied == Copied::unfenced) {
      block.fail("wgmma reads what a cp.async has written, without a fence of its thread since");
    }
  }

  /// Eight elements, `chunk` chunks behind the start.
  Chunk chunk(int row, int chunk) const {
    const auto r = static_cast<std::size_t>(row);
    const auto c = (chunk_ + static_cast<std::size_t>(chunk)) ^ (row_ + r) % kSwizzledRows;
    Chunk values;
    std::memcpy(&values, view_ + r * kPanelRowBytes + c * sizeof(Chunk), sizeof values);
    return values;
  }

 private:
  static const unsigned char* seen_by_engines(const unsigned char* data) {
    return static_cast<const unsigned char*>(block.shared().engine_view(data));
  }

  std::size_t row_, chunk_;
  const unsigned char* view_;
};

/// Swaps rows and columns. A step lets the values of two rows alternate; after three they have turned.
inline void transpose(Chunk (&rows)[kChunk]) {
  for (int step = 0; step < 3; ++step) {
    Chunk mixed[kChunk];
    for (int i = 0; i < kChunk / 2; ++i) {
      const Chunk a = rows[i], b = rows[i + kChunk / 2];
      mixed[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
      mixed[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    std::memcpy(rows, mixed, sizeof mixed);
  }
}

// The tensor cores of sm_90 are assumed to add the 16 products to the accumulator and to truncate
// the sum.
void add_truncated(float* c, const LeftMatrix& a, const RightMatrix& b, int columns) {
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < columns; ++n) {
      double sum = c[m * columns + n];
      for (int k = 0; k < kDepth; ++k) sum += double{a.values[m][k]} * double{b.values[k][n]};
      const float nearest = static_cast<float>(sum);
      c[m * columns + n] =
          std::fabs(nearest) > std::fabs(sum) ? std::nextafter(nearest, 0.0f) : nearest;
    }
  }
}

// They keep fewer bits of sums of 8-bit numbers.
void add_narrow(float* c, const LeftMatrix& a, const RightMatrix& b, int columns) {
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < columns; ++n) {
      float& sum = c[m * columns + n];
      sum = narrow_step(sum, a.values[m], &b.values[0][n], kWarpgroupColumns, kNarrowStep);
    }
  }
}

TESSERA_VECTORS void add_rounded(float* c, const LeftMatrix& a, const RightMatrix& b, int columns,
                                 int depth) {
  for (int n = 0; n < columns; n += kTileColumns) {
    for (int m = 0; m < kRows; m += kTileRows) {
      const float* const rows[] = {a.values[m], a.values[m + 1], a.values[m + 2], a.values[m + 3]};
      add_tile_product(c + m * columns + n, columns, rows, &b.values[0][n], kWarpgroupColumns,
                       depth);
    }
  }
}

template <typename T>
inline void convert_row(float* values, const std::uint16_t* bits, int count) {
#pragma omp simd
  for (int i = 0; i < count; ++i) {
    T value;
    value.bits = bits[i];
    values[i] = static_cast<float>(value);
  }
}
TESSERA_VECTORS void convert_row(bfloat16, float* values, const std::uint16_t* bits, int count) {
  convert_row<bfloat16>(values, bits, count);
}
TESSERA_VECTORS void convert_row(float16, float* values, const std::uint16_t* bits, int count) {
  convert_row<float16>(values, bits, count);
}

/// The numbers of the OCP 8-bit specification: a sign, four bits of an exponent and three of a mantissa.
float of_e4m3(unsigned code) {
  const int magnitude = static_cast<int>(code & 0x7f), exponent = magnitude >> 3;
  const auto mantissa = static_cast<float>(magnitude % 8);
  const float value = exponent == 0       ? std::ldexp(mantissa, -9)
                      : magnitude == 0x7f ? NAN
                                          : std::ldexp(mantissa + 8.0f, exponent - 10);
  return (code & 0x80) != 0 ? -value : value;
}

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all;
    for (unsigned code = 0; code < 256; ++code) all[code] = of_e4m3(code);
    return all;
  }();
  return values;
}

}  // namespace

void read_left_rows(LeftMatrix& a, const Panel& panel, int warp) {
  const Rows rows(panel, kRows * (warp + 1));
  for (int m = 0; m < kRows; ++m) {
    for (int k = 0; k < kDepth; k += kChunk) {
      const Chunk values = rows.chunk(kRows * warp + m, k / kChunk);
      std::memcpy(&a.bits[m][k], &values, sizeof values);
    }
  }
}

void read_left_columns(LeftMatrix& a, const Panel& panel, int warp) {
  const Rows rows(panel, kDepth);
  for (int k = 0; k < kDepth; ++k) {
    for (int m = 0; m < kRows; m += kChunk) {
      const Chunk values = rows.chunk(k, (kRows * warp + m) / kChunk);
      for (int i = 0; i < kChunk; ++i) a.bits[m + i][k] = values[i];
    }
  }
}

void read_right_rows(RightMatrix& b, const Panel& panel, int columns) {
  for (int first = 0; first < columns; first += kPanelColumns) {
    const Rows rows({panel.start + first / kPanelColumns * panel.panel_bytes, 0}, kDepth);
    for (int k = 0; k < kDepth; ++k) {
      for (int n = 0; n < kPanelColumns; n += kChunk) {
        const Chunk values = rows.chunk(k, n / kChunk);
        std::memcpy(&b.bits[k][first + n], &values, sizeof values);
      }
    }
  }
}

void read_right_columns(RightMatrix& b, const Panel& panel, int columns) {
  const Rows rows(panel, columns);
  for (int n = 0; n < columns; n += kChunk) {
    for (int k = 0; k < kDepth; k += kChunk) {
      Chunk values[kChunk];
      for (int i = 0; i < kChunk; ++i) values[i] = rows.chunk(n + i, k / kChunk);
      transpose(values);
      for (int i = 0; i < kChunk; ++i) std::memcpy(&b.bits[k + i][n], &values[i], sizeof values[i]);
    }
  }
}

template <typename T>
void convert(LeftMatrix& a) {
  for (int m = 0; m < kRows; ++m) convert_row(T{}, a.values[m], a.bits[m], kDepth);
}
template <typename T>
void convert(RightMatrix& b, int columns) {
  for (int k = 0; k < kDepth; ++k) convert_row(T{}, b.values[k], b.bits[k], columns);
}
template <>
void convert<E4m3Pair>(LeftMatrix& a) {
  const auto& value_of = e4m3_values();
  for (int m = 0; m < kRows; ++m) {
    for (int k = 0; k < kDepth; ++k) {
      a.values[m][2 * k] = value_of[a.bits[m][k] & 0xff];
      a.values[m][2 * k + 1] = value_of[a.bits[m][k] >> 8];
    }
  }
}
template <>
void convert<E4m3Pair>(RightMatrix& b, int columns) {
  const auto& value_of = e4m3_values();
  for (int k = 0; k < kDepth; ++k) {
    for (int n = 0; n < columns; ++n) {
      b.values[2 * k][n] = value_of[b.bits[k][n] & 0xff];
      b.values[2 * k + 1][n] = value_of[b.bits[k][n] >> 8];
    }
  }
}
template void convert<bfloat16>(LeftMatrix&);
template void convert<float16>(LeftMatrix&);
template void convert<bfloat16>(RightMatrix&, int);
template void convert<float16>(RightMatrix&, int);

template <typename T>
void add_product(float* c, const LeftMatrix& a, const RightMatrix& b, int columns) {
  if (!is_approximate()) return add_rounded(c, a, b, columns, kDepth * kValuesOf<T>);
  (kValuesOf<T> == 1 ? add_truncated : add_narrow)(c, a, b, columns);
}
template void add_product<bfloat16>(float*, const LeftMatrix&, const RightMatrix&, int);
template void add_product<float16>(float*, const LeftMatrix&, const RightMatrix&, int);
template void add_product<E4m3Pair>(float*, const LeftMatrix&, const RightMatrix&, int);

}  // namespace tessera::emulation
