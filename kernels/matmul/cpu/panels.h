// Packing: a factor's elements in the order of a micro-kernel.
//
// A panel of `kWidth` rows of a, or columns of b, is stored depth by depth: element (i, k) lies at
// k * kWidth + i. A factor with a contiguous depth is transposed in registers, square by square;
// another one is copied.
//
// Included by files that are compiled for one instruction set each, so all names are local to them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/transpose.h"
#include "kernels/matmul/cpu/engine.h"
#include "runtime/half.h"

#define TESSERA_INLINE [[gnu::always_inline]] inline

namespace tessera::cpu {
namespace {

/// Two neighbours along the depth, as instructions for 16-bit products take them.
struct Pair {
  std::uint32_t bits;
};

template <typename T>
struct LaneOf {
  using type = T;
};
template <>
struct LaneOf<Pair> {
  using type = std::uint32_t;
};

template <typename T, int kLanes>
struct VectorOf {
  typedef typename LaneOf<T>::type type
      __attribute__((vector_size(kLanes * static_cast<int>(sizeof(T)))));
};

/// How many elements of the factor's depth one packed element takes.
template <typename T>
inline constexpr std::int64_t kDepthOf = std::is_same_v<T, Pair> ? 2 : 1;

// ---- Reading

/// kLanes packed elements from neighbours of the factor: along the depth, or with T = Source in any
/// direction.
template <typename T, int kLanes, typename Source>
TESSERA_INLINE typename VectorOf<T, kLanes>::type read(const Source* from) {
  typename VectorOf<T, kLanes>::type to;
  if constexpr (std::is_same_v<T, Source> || std::is_same_v<T, Pair>) {
    std::memcpy(&to, from, sizeof(to));
  } else {
    T wide[kLanes];
    for (int i = 0; i < kLanes; ++i) wide[i] = static_cast<T>(from[i]);
    std::memcpy(&to, wide, sizeof(to));
  }
  return to;
}

// ---- Factors with a contiguous depth

/// A square of kLanes lines, of which kRows <= kLanes are rows from `from` on. Only `count` of them
/// exist, with `depth` elements each.
template <typename T, int kLanes, int kRows, typename Source>
TESSERA_INLINE void pack_square(T* to, std::int64_t width, const Source* from, std::int64_t stride,
                                std::int64_t count, std::int64_t depth) {
  constexpr std::int64_t kDepth = kLanes * kDepthOf<T>;
  using Vector = typename VectorOf<T, kLanes>::type;
  Vector rows[kLanes] = {};
  if (count >= kRows && depth >= kDepth) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) rows[i] = read<T, kLanes>(from + i * stride);
  } else {
    for (int i = 0; i < kRows; ++i) {
      Source row[kDepth] = {};
      if (i < count) std::copy_n(from + i * stride, std::min(depth, kDepth), row);
      rows[i] = read<T, kLanes>(row);
    }
  }
  transpose(rows);
  const std::int64_t depths =
      std::min<std::int64_t>(kLanes, (depth + kDepthOf<T> - 1) / kDepthOf<T>);
  for (std::int64_t k = 0; k < depths; ++k) {
    std::memcpy(to + k * width, &rows[k], kRows * sizeof(T));
  }
}

/// kRows rows of a panel, to all depths. Only `count` of them and of the rows behind them exist.
template <typename T, int kWidth, int kLanes, int kRows, typename Source>
TESSERA_INLINE void pack_squares(T* to, const Source* from, std::int64_t stride, std::int64_t count,
                                 std::int64_t depth) {
  constexpr std::int64_t kDepth = kLanes * kDepthOf<T>;
  // The next squares' rows are too many streams for the CPU to foresee.
  const std::int64_t ahead = std::min<std::int64_t>(count, kRows + kLanes);
  for (std::int64_t k = 0; k < depth; k += kDepth) {
    for (std::int64_t next = kRows; next < ahead; ++next) {
      __builtin_prefetch(from + next * stride + k);
    }
    pack_square<T, kLanes, kRows>(to + k / kDepthOf<T> * kWidth, kWidth, from + k, stride, count,
                                  depth - k);
  }
}

template <typename T, int kWidth, int kLanes, typename Source>
void pack_transposed(T* to, const Source* from, std::int64_t stride, std::int64_t count,
                     std::int64_t depth) {
  constexpr int kRest = kWidth % kLanes;
  for (int i = 0; i < kWidth - kRest; i += kLanes) {
    pack_squares<T, kWidth, kLanes, kLanes>(to + i, from + i * stride, stride, count - i, depth);
  }
  if constexpr (kRest > 0) {
    constexpr int i = kWidth - kRest;
    pack_squares<T, kWidth, kLanes, kRest>(to + i, from + i * stride, stride, count - i, depth);
  }
}

// ---- Factors with contiguous rows of b, or columns of a

/// One depth of a panel from one row of the factor, or a pair of depths from two.
template <typename T, int kWidth, typename Source>
TESSERA_INLINE void pack_row(T* to, const Source* from, const Source* second) {
  if constexpr (std::is_same_v<T, Pair>) {
    for (int i = 0; i < kWidth; ++i) {
      to[i].bits = from[i].bits | std::uint32_t{second[i].bits} << 16;
    }
  } else {
    for (int i = 0; i < kWidth; ++i) to[i] = static_cast<T>(from[i]);
  }
}

/// One depth, or a pair of depths, of a panel with `count` <= kWidth rows or columns.
template <typename T, int kWidth, typename Source>
TESSERA_INLINE void pack_panel_row(T* to, const Source* from, const Source* second,
                                   std::int64_t count) {
  if (count >= kWidth && (kDepthOf<T> == 1 || second != nullptr)) {
    return pack_row<T, kWidth>(to, from, second);
  }
  Source first_copy[kWidth] = {}, second_copy[kWidth] = {};
  const std::int64_t copied = std::min<std::int64_t>(count, kWidth);
  std::copy_n(from, copied, first_copy);
  if (second != nullptr) std::copy_n(second, copied, second_copy);
  pack_row<T, kWidth>(to, first_copy, second_copy);
}

template <typename T, int kWidth, typename Source>
void pack_rows(char* to, std::int64_t panel_bytes, const Source* from, std::int64_t stride,
               std::int64_t count, std::int64_t depth) {
  // Some rows of all panels at a time: panels may begin at the same place of a page, so that their
  // lines would drive each other out of the first-level cache.
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(Source));
  for (std::int64_t first = 0; first < depth; first += kRows) {
    const std::int64_t end = std::min(depth, first + kRows);
    for (std::int64_t k = end; k < std::min(depth, end + kRows); ++k) {
      for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(from + k * stride + i);
    }
    for (std::int64_t i = 0; i < count; i += kWidth) {
      T* panel = reinterpret_cast<T*>(to + i / kWidth * panel_bytes) + first / kDepthOf<T> * kWidth;
      for (std::int64_t k = first; k < end; k += kDepthOf<T>, panel += kWidth) {
        const Source* const row = from + k * stride + i;
        pack_panel_row<T, kWidth>(
            panel, row, kDepthOf<T> == 2 && k + 1 < depth ? row + stride : nullptr, count - i);
      }
    }
  }
}

/// Zeros from depth `depth` on, up to a multiple of `step`.
template <typename T, int kWidth>
void fill_depths(T* panel, std::int64_t depth, std::int64_t step) {
  const std::int64_t packed = (depth + kDepthOf<T> - 1) / kDepthOf<T>;
  const std::int64_t whole = (depth + step - 1) / step * step / kDepthOf<T>;
  std::memset(panel + packed * kWidth, 0,
              static_cast<std::size_t>((whole - packed) * kWidth) * sizeof(T));
}

template <typename T, int kWidth, int kLanes, typename Source, int kDepthStep = 1>
void pack(void* to, std::int64_t panel_bytes, const Factor& from, std::int64_t count,
          std::int64_t depth) {
  auto* const panels = static_cast<char*>(to);
  const auto* const data = static_cast<const Source*>(from.data);
  if (!from.depth_contiguous) {
    pack_rows<T, kWidth>(panels, panel_bytes, data, from.stride, count, depth);
  }
  for (std::int64_t i = 0; i < count; i += kWidth) {
    T* const panel = reinterpret_cast<T*>(panels + i / kWidth * panel_bytes);
    if (from.depth_contiguous) {
      pack_transposed<T, kWidth, std::min<int>(kLanes, std::bit_ceil(unsigned{kWidth}))>(
          panel, data + i * from.stride, from.stride, count - i, depth);
    }
    if constexpr (kDepthStep > kDepthOf<T>) fill_depths<T, kWidth>(panel, depth, kDepthStep);
  }
}

}  // namespace
}  // namespace tessera::cpu
