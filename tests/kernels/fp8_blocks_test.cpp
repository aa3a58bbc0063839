// Rounding to 8 bits with scales of blocks, against a search for each block's scale in float64.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "kernels/fp8/op.h"
#include "tests/kernels/fp8_numbers.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;
using Values = std::vector<double>;

constexpr std::int64_t kSide = 128;

/// A rounded matrix, with a scale for each number.
struct Rounded {
  Values numbers, scales;
};

/// The largest power of two, at most 2^100, that keeps the finite numbers within the format.
double scale_for(double largest, double limit) {
  if (largest == 0.0) return 1.0;
  double scale = 0x1p100;
  while (largest * scale > limit) scale /= 2.0;
  return scale;
}

Rounded round_blocks(const Values& x, std::int64_t N, std::int64_t C, std::int64_t rows,
                     std::int64_t columns, DType format) {
  const Values numbers = test::numbers_of(format);
  Rounded result{Values(x.size()), Values(x.size())};
  for (std::int64_t r0 = 0; r0 < N; r0 += rows) {
    for (std::int64_t c0 = 0; c0 < C; c0 += columns) {
      const auto for_each = [&](const auto& f) {
        for (std::int64_t r = r0; r < std::min(N, r0 + rows); ++r) {
          for (std::int64_t c = c0; c < std::min(C, c0 + columns); ++c) f(r * C + c);
        }
      };
      double largest = 0.0;
      for_each([&](std::int64_t i) {
        if (std::isfinite(x[i])) largest = std::max(largest, std::abs(x[i]));
      });
      const double scale = scale_for(largest, numbers.back());
      for_each([&](std::int64_t i) {
        result.scales[i] = scale;
        result.numbers[i] = std::isfinite(x[i]) ? test::nearest(numbers, x[i] * scale) / scale
                                                : std::numeric_limits<double>::quiet_NaN();
      });
    }
  }
  return result;
}

bool same(const Values& a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  }
  return a.size() == b.size();
}

/// [C, N] of [N, C].
Values transposed(const Values& x, std::int64_t N, std::int64_t C) {
  Values result(x.size());
  for (std::int64_t i = 0; i < N * C; ++i) result[i % C * N + i / C] = x[i];
  return result;
}

Values expanded(const Tensor& y, const Tensor& inverse, Fp8Blocks blocks,
                Transpose transpose = Transpose::no) {
  const Tensor x = test::poisoned(y.shape(), DType::bf16);
  fp8_expand_blocks(x, y, inverse, blocks, transpose);
  const Tensor slice = test::unaligned(x);
  fp8_expand_blocks(slice, test::unaligned(y), inverse, blocks, transpose);
  CHECK(test::same_bits(slice, x));
  return test::to_doubles(x);
}

/// Normal numbers of many magnitudes. The first block of rows, and of columns, has zeros alone, and another infinity,
/// NaN and the smallest number of bf16.
Tensor matrix(std::int64_t N, std::int64_t C) {
  Values values = test::to_doubles(test::normal_tensor({N, C}, DType::f32, "x"));
  for (std::int64_t i = 0; i < N * C; ++i) {
    const std::int64_t r = i / C, c = i % C;
    values[i] *= std::exp2(static_cast<double>((7 * r + 3 * c) % 40 - 20));
    if ((r == 0 && c < kSide) || (c == 0 && r < kSide)) values[i] = 0.0;
  }
  const auto set = [&](std::int64_t from_last, double value) {
    if (from_last < N * C) values[N * C - 1 - from_last] = value;
  };
  set(0, -std::numeric_limits<double>::infinity());
  set(1, std::numeric_limits<double>::quiet_NaN());
  set(2, 0x1p-133);
  set(kSide * C, 3e38);
  return test::tensor_of(values, {N, C}, DType::bf16);
}

/// A matrix in 8 bits and its inverse scales.
struct Matrix {
  Tensor numbers, inverse;
  /// `parts` of them, one after another.
  Matrix(std::int64_t rows, std::int64_t depth, DType format, Fp8Blocks blocks,
         std::int64_t parts = 0) {
    Shape shape = {rows, depth}, scales = fp8_scales_shape(blocks, rows, depth);
    if (parts > 0) shape = {parts, rows, depth}, scales = {parts, scales[0], scales[1]};
    numbers = Tensor::zeros(shape, format);
    inverse = Tensor::full(scales, DType::f32, 77.0);
  }
};

/// The inverse scales of a matrix in the order that op.h states, from a scale for each number.
std::vector<float> in_order(const Values& scales, std::int64_t rows, std::int64_t depth,
                            Fp8Blocks blocks) {
  const Shape shape = fp8_scales_shape(blocks, rows, depth);
  std::vector<float> result(static_cast<std::size_t>(shape.numel()), 1.0f);
  for (std::int64_t i = 0; i < rows * depth; ++i) {
    const std::int64_t r = i / depth, block = i % depth / kSide;
    const std::int64_t at =
        blocks == Fp8Blocks::vectors ? block * rows + r : r / kSide * shape[1] + block;
    result[at] = static_cast<float>(1.0 / scales[i]);
  }
  return result;
}

constexpr std::pair<std::int64_t, std::int64_t> kExtents[] = {
    {1, 1}, {128, 128}, {130, 260}, {5, 300}, {256, 132}, {131, 7}, {0, 4}, {4, 0}};

}  // namespace

TEST_CASE("fp8 blocks: rows and columns of a matrix have a scale for 128 numbers") {
  for (const auto& [N, C] : kExtents) {
    for (const DType format : {DType::e4m3, DType::e5m2}) {
      CAPTURE(N, C, name_of(format));
      test::for_every_schedule([&, N = N, C = C] {
        const Tensor x = matrix(N, C);
        const Values values = test::to_doubles(x);
        const Rounded rows = round_blocks(values, N, C, 1, kSide, format),
                      columns = round_blocks(values, N, C, kSide, 1, format);
        Matrix y(N, C, format, Fp8Blocks::vectors), yt(C, N, format, Fp8Blocks::vectors),
            y_alone = y, yt_alone = yt;
        fp8_quantize_blocks(y.numbers, y.inverse, yt.numbers, yt.inverse, x, Fp8Blocks::vectors);
        REQUIRE(same(expanded(y.numbers, y.inverse, Fp8Blocks::vectors), rows.numbers));
        REQUIRE(same(expanded(yt.numbers, yt.inverse, Fp8Blocks::vectors),
                     transposed(columns.numbers, N, C)));
        REQUIRE(y.inverse.to_vector<float>() == in_order(rows.scales, N, C, Fp8Blocks::vectors));
        REQUIRE(yt.inverse.to_vector<float>() ==
                in_order(transposed(columns.scales, N, C), C, N, Fp8Blocks::vectors));
        const Tensor turned = Tensor::zeros({N, C}, format);
        fp8_transpose(turned, yt.numbers);
        REQUIRE(same(expanded(turned, yt.inverse, Fp8Blocks::vectors, Transpose::yes),
                     columns.numbers));
        // Each alone, where memory is not aligned.
        y_alone = Matrix(N, C, format, Fp8Blocks::vectors);
        yt_alone = Matrix(C, N, format, Fp8Blocks::vectors);
        fp8_quantize_blocks(test::unaligned(y_alone.numbers), y_alone.inverse, {}, {}, x,
                            Fp8Blocks::vectors);
        const Tensor numbers = test::unaligned(yt_alone.numbers);
        fp8_quantize_blocks({}, {}, numbers, yt_alone.inverse, test::unaligned(x),
                            Fp8Blocks::vectors);
        REQUIRE(test::same_bits(y_alone.inverse, y.inverse));
        REQUIRE(test::same_bits(numbers, yt.numbers));
        REQUIRE(test::same_bits(yt_alone.inverse, yt.inverse));
      });
    }
  }
}

TEST_CASE("fp8 blocks: squares of a matrix have one scale, in rows and in columns") {
  for (const auto& [N, C] : kExtents) {
    CAPTURE(N, C);
    test::for_every_schedule([&, N = N, C = C] {
      const Tensor x = matrix(N, C);
      const Rounded squares = round_blocks(test::to_doubles(x), N, C, kSide, kSide, DType::e4m3);
      Matrix y(N, C, DType::e4m3, Fp8Blocks::squares), yt(C, N, DType::e4m3, Fp8Blocks::squares);
      fp8_quantize_blocks(y.numbers, y.inverse, yt.numbers, yt.inverse, x, Fp8Blocks::squares);
      REQUIRE(same(expanded(y.numbers, y.inverse, Fp8Blocks::squares), squares.numbers));
      REQUIRE(same(expanded(yt.numbers, yt.inverse, Fp8Blocks::squares),
                   transposed(squares.numbers, N, C)));
      REQUIRE(same(expanded(y.numbers, yt.inverse, Fp8Blocks::squares, Transpose::yes),
                   squares.numbers));
      if (N * C == 0) return;
      REQUIRE(y.inverse.to_vector<float>() == in_order(squares.scales, N, C, Fp8Blocks::squares));
      REQUIRE(yt.inverse.to_vector<float>() ==
              in_order(transposed(squares.scales, N, C), C, N, Fp8Blocks::squares));
    });
  }
}

TEST_CASE("fp8 blocks: columns of a part of the rows have the bits of a matrix by itself") {
  for (const std::int64_t rows : {128, 130, 60, 3}) {
    CAPTURE(rows);
    test::for_every_schedule([&] {
      constexpr std::int64_t kParts = 4, kColumns = 136;
      const Tensor x = matrix(kParts * rows, kColumns);
      Matrix y(kParts * rows, kColumns, DType::e4m3, Fp8Blocks::vectors),
          alone = y, yt(kColumns, rows, DType::e4m3, Fp8Blocks::vectors, kParts);
      fp8_quantize_blocks(y.numbers, y.inverse, yt.numbers, yt.inverse, x, Fp8Blocks::vectors);
      alone = Matrix(kParts * rows, kColumns, DType::e4m3, Fp8Blocks::vectors);
      fp8_quantize_blocks(alone.numbers, alone.inverse, {}, {}, x, Fp8Blocks::vectors);
      REQUIRE(test::same_bits(y.numbers, alone.numbers));
      REQUIRE(test::same_bits(y.inverse, alone.inverse));
      for (std::int64_t part = 0; part < kParts; ++part) {
        const Matrix of_part(kColumns, rows, DType::e4m3, Fp8Blocks::vectors);
        fp8_quantize_blocks({}, {}, of_part.numbers, of_part.inverse,
                            x.slice(part * rows, (part + 1) * rows), Fp8Blocks::vectors);
        REQUIRE(test::same_bits(yt.numbers.slice(part, part + 1).reshape(of_part.numbers.shape()),
                                of_part.numbers));
        REQUIRE(test::same_bits(yt.inverse.slice(part, part + 1).reshape(of_part.inverse.shape()),
                                of_part.inverse));
      }
    });
  }
}

TEST_CASE("fp8 blocks: there are more tiles than a launch has blocks of threads") {
  const test::Rank rank;
  const std::int64_t N = 128 * 4096 + 3;
  const Tensor x = test::normal_tensor({N, 1}, DType::bf16, "x");
  const Matrix yt(1, N, DType::e4m3, Fp8Blocks::vectors);
  fp8_quantize_blocks({}, {}, yt.numbers, yt.inverse, x, Fp8Blocks::vectors);
  const Rounded expected = round_blocks(test::to_doubles(x), N, 1, kSide, 1, DType::e4m3);
  REQUIRE(same(expanded(yt.numbers, yt.inverse, Fp8Blocks::vectors), expected.numbers));
}

TEST_CASE("fp8 blocks refuse arguments that do not fit together") {
  const test::Rank rank;
  const Tensor x = Tensor::zeros({6, 4}, DType::bf16);
  const Matrix y(6, 4, DType::e4m3, Fp8Blocks::vectors), yt(4, 6, DType::e4m3, Fp8Blocks::vectors);
  const auto quantize = [&](Out numbers, Out inverse, Out numbers_t, Out inverse_t) {
    fp8_quantize_blocks(numbers, inverse, numbers_t, inverse_t, x, Fp8Blocks::vectors);
  };
  REQUIRE_THROWS_WITH(quantize({}, {}, {}, {}), Contains("y and yt are undefined"));
  REQUIRE_THROWS_WITH(quantize(y.numbers, yt.inverse, {}, {}), Contains("inverse is f32 [1, 4]"));
  REQUIRE_THROWS_WITH(quantize({}, {}, y.numbers, yt.inverse), Contains("yt is e4m3 [6, 4]"));
  const Matrix parts(4, 1, DType::e4m3, Fp8Blocks::vectors, 5);
  REQUIRE_THROWS_WITH(quantize({}, {}, parts.numbers, parts.inverse),
                      Contains("yt has 5 parts, and x has 6 rows"));
  REQUIRE_THROWS_WITH(fp8_quantize_blocks(y.numbers, y.inverse, {}, {},
                                          Tensor::zeros({6, 4}, DType::f32), Fp8Blocks::vectors),
                      Contains("x is f32"));
  REQUIRE_THROWS_WITH(
      fp8_expand_blocks(x, y.numbers, y.inverse, Fp8Blocks::vectors, Transpose::yes),
      Contains("inverse is f32 [1, 6]"));
}

}  // namespace tessera
