// Tiles of scores for attention on the CPU, forward and backward.
//
// A tile of scores is stored with one row per key and one *lane* (column) per query. So the maximum
// and the sum over keys are elementwise operations between rows. Keys and values are used as they
// lie in memory; only the queries must be transposed.
//
// Functions with loops over elements are compiled for several instruction sets (run in
// kernels/cpu/parallel.h), each once, not once for every task that calls them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/attention/op.h"
#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/small_product.h"
#include "kernels/cpu/transpose.h"

namespace tessera::cpu {

/// Queries, and keys, of a tile: 64 x 64 floats are 16 KB, half of a first-level cache.
inline constexpr std::int64_t kAttentionTile = 64;
/// Tiles on the diagonal are computed in bands of this many keys, to skip most masked scores.
inline constexpr std::int64_t kAttentionBand = 16;

/// The queries and keys of a tile of scores.
struct TilePosition {
  std::int64_t first_query = 0;
  std::int64_t queries = 0;
  std::int64_t first_key = 0;
  std::int64_t keys = 0;
  /// Tkv - Tq: query i sees keys 0 .. i + shift.
  std::int64_t shift = 0;

  /// The number of lanes, from the first on, that do not see the tile's key j. The others do.
  std::int64_t hidden(std::int64_t j) const {
    return std::clamp<std::int64_t>(first_key + j - shift - first_query, 0, queries);
  }
};

/// Keys [begin, end) of a tile and the first lane worth computing for them, a whole vector.
struct Band {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first_lane = 0;

  std::int64_t keys() const { return end - begin; }
};

/// Calls body(band) for the bands of a tile in order. A tile without masked scores is one band.
template <typename T, typename F>
void for_each_band(const TilePosition& tile, F&& body) {
  const std::int64_t step = tile.hidden(tile.keys - 1) == 0 ? tile.keys : kAttentionBand;
  for (std::int64_t begin = 0; begin < tile.keys; begin += step) {
    const std::int64_t first_lane = tile.hidden(begin) / kVectorSize<T> * kVectorSize<T>;
    body(Band{begin, std::min(tile.keys, begin + step), first_lane});
  }
}

/// One head of one batch element: a row of head_size elements per token.
template <typename T>
Matrix<T> head_rows(const Heads& x, std::int64_t batch, std::int64_t head) {
  T* const first = x.tensor.data<T>() + x.offset + batch * x.batch_stride + head * x.head_size;
  return {first, x.token_stride, 1};
}

/// to = scale * from, with zeros up to a whole vector of columns.
template <typename T>
void load_rows(const Matrix<compute_t<T>>& to, const Matrix<T>& from, std::int64_t rows,
               std::int64_t columns, compute_t<T> scale = 1) {
  run([&] {
    for (std::int64_t i = 0; i < rows; ++i) {
      const T* const source = from.row(i);
      compute_t<T>* const target = to.row(i);
      for (std::int64_t j = 0; j < columns; ++j) target[j] = scale * load(source[j]);
      std::fill(target + columns, target + whole_vectors<compute_t<T>>(columns), 0);
    }
  });
}

/// A square of whole vectors: to(j, i) = f(from(i, j)).
template <typename C, typename To, typename From, typename F>
void transpose_square(const Matrix<To>& to, const Matrix<From>& from, const F& f) {
  constexpr int kSide = static_cast<int>(kVectorSize<C>);
  typedef C Vector __attribute__((vector_size(kSide * static_cast<int>(sizeof(C)))));
  Vector rows[kSide];
  for (int i = 0; i < kSide; ++i) {
    C row[kSide];
    for (int j = 0; j < kSide; ++j) row[j] = f(load(from.row(i)[j]));
    std::memcpy(&rows[i], row, sizeof(row));
  }
  transpose(rows);
  for (int j = 0; j < kSide; ++j) {
    C column[kSide];
    std::memcpy(column, &rows[j], sizeof(column));
    for (int i = 0; i < kSide; ++i) store(to.row(j)[i], column[i]);
  }
}

/// to(j, i) = f(from(i, j)). C is the type that f computes in.
template <typename C, typename To, typename From, typename F>
void transpose_rows(const Matrix<To>& to, const Matrix<From>& from, std::int64_t rows,
                    std::int64_t columns, const F& f) {
  constexpr std::int64_t kSide = kVectorSize<C>;
  for (std::int64_t i = 0; i < rows; i += kSide) {
    for (std::int64_t j = 0; j < columns; j += kSide) {
      if (i + kSide <= rows && j + kSide <= columns) {
        transpose_square<C>(to.from(j, i), from.from(i, j), f);
        continue;
      }
      for (std::int64_t r = i; r < std::min(rows, i + kSide); ++r) {
        for (std::int64_t c = j; c < std::min(columns, j + kSide); ++c) {
          store(to.row(c)[r], f(load(from.row(r)[c])));
        }
      }
    }
  }
}

/// to = scale * from^T, with zeros up to a whole vector of lanes: row j of `to` is column j.
template <typename T>
void load_columns(const Matrix<compute_t<T>>& to, const Matrix<T>& from, std::int64_t rows,
                  std::int64_t columns, compute_t<T> scale = 1) {
  using C = compute_t<T>;
  run([&] {
    transpose_rows<C>(to, from, rows, columns, [scale](C value) { return scale * value; });
    for (std::int64_t j = 0; j < columns; ++j) {
      std::fill(to.row(j) + rows, to.row(j) + whole_vectors<C>(rows), 0);
    }
  });
}

/// to = from^T: row i of `to` is lane i.
template <typename T>
void store_columns(const Matrix<T>& to, const Matrix<compute_t<T>>& from, std::int64_t rows,
                   std::int64_t columns) {
  using C = compute_t<T>;
  run([&] { transpose_rows<C>(to, from, columns, rows, [](C value) { return value; }); });
}

/// to = scale * from.
template <typename T>
void store_rows(const Matrix<T>& to, const Matrix<compute_t<T>>& from, std::int64_t rows,
                std::int64_t columns, compute_t<T> scale = 1) {
  run([&] {
    for (std::int64_t i = 0; i < rows; ++i) {
      const compute_t<T>* const source = from.row(i);
      T* const target = to.row(i);
      for (std::int64_t j = 0; j < columns; ++j) store(target[j], scale * source[j]);
    }
  });
}

}  // namespace tessera::cpu
