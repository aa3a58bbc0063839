#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "kernels/cast/op.h"
#include "runtime/error.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {

TEST_CASE("cast rounds to the target's precision between all floating dtypes") {
  const test::Rank rank;
  for (const DType from : test::kFloating) {
    for (const DType to : test::kFloating) {
      for (const std::int64_t n : {0, 1, 31, 16 * 1024 + 5}) {
        const Tensor x = test::normal_tensor({n}, from, "x");
        const Tensor y = test::poisoned({n}, to);
        cast(y, x);
        // 2^-14 is f16's smallest normal number; below it the rounding error is absolute.
        REQUIRE(test::worst_error(test::to_doubles(y), test::to_doubles(x), 0x1p-14) <=
                test::unit_roundoff(to));
      }
    }
  }
}

TEST_CASE("cast from f64 to 16 bits rounds once", "[cpu]") {
  // Each value is so close to a tie that its f32 neighbour is the tie: two roundings would differ.
  const test::Rank rank;
  const std::vector<double> values = {1.0 + 0x1p-8 + 0x1p-40,
                                      1.0 + 3 * 0x1p-8 - 0x1p-40,
                                      -1.0 - 0x1p-8 - 0x1p-40,
                                      1e300,
                                      -0.0,
                                      0.5};
  const Tensor x = Tensor::from(values, {6}), y = test::poisoned({6}, DType::bf16);
  cast(y, x);
  REQUIRE(test::to_doubles(y) ==
          std::vector<double>{1.0 + 0x1p-7, 1.0 + 0x1p-7, -1.0 - 0x1p-7, HUGE_VAL, 0.0, 0.5});
  REQUIRE(y.to_vector<bfloat16>()[4].bits == 0x8000u);
}

TEST_CASE("cast keeps infinities and NaN") {
  const test::Rank rank;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const DType from : test::kFloating) {
    for (const DType to : test::kFloating) {
      const Tensor special = Tensor::from(std::vector<float>{infinity, -infinity, NAN}, {3});
      const Tensor x = Tensor::empty({3}, from), y = Tensor::empty({3}, to);
      cast(x, special);
      cast(y, x);
      const auto values = test::to_doubles(y);
      REQUIRE(values[0] == infinity);
      REQUIRE(values[1] == -infinity);
      REQUIRE(std::isnan(values[2]));
    }
  }
}

// The value of a 16-bit pattern as an f32 pattern, by the definitions of the formats.
namespace {

std::uint32_t f32_of_bf16(std::uint32_t bits) {
  return bits << 16;
}

std::uint32_t f32_of_f16(std::uint32_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31u) return sign | 0x7f800000u | mantissa << 13;
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, -24)
                               : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude));
}

template <typename T>
Tensor every_pattern() {
  std::vector<T> patterns(0x10000);
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    patterns[bits].bits = static_cast<std::uint16_t>(bits);
  }
  return Tensor::from(patterns, {0x10000});
}

template <typename T>
std::vector<std::uint32_t> widened_patterns() {
  const Tensor x = every_pattern<T>(), y = test::poisoned(x.shape(), DType::f32);
  cast(y, x);
  std::vector<std::uint32_t> patterns;
  for (const float value : y.to_vector<float>()) {
    patterns.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return patterns;
}

/// Nearest value of `to`, ties to the even pattern, by search among all finite ones. NaN keeps its
/// sign and, in bf16, its upper bits, and becomes quiet.
std::uint16_t narrowed_pattern(float value, DType to, const std::vector<double>& finite) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  if (std::isnan(value)) return to == DType::bf16 ? bits >> 16 | 0x40u : sign | 0x7e00u;
  const double magnitude = std::fabs(static_cast<double>(value));
  const auto above = std::lower_bound(finite.begin(), finite.end(), magnitude) - finite.begin();
  // The value after the largest finite one counts as if the exponent had no end: infinity.
  if (above == 0) return sign;
  const double high = above < static_cast<std::ptrdiff_t>(finite.size())
                          ? finite[above]
                          : 2 * finite.back() - finite[finite.size() - 2];
  const double low = finite[above - 1], middle = low + (high - low) / 2;
  const bool up = magnitude > middle || (magnitude == middle && above % 2 == 0);
  return static_cast<std::uint16_t>(sign | (up ? above : above - 1));
}

template <typename T>
void check_narrowing(DType to, std::uint32_t largest_finite,
                     std::uint32_t (*widen)(std::uint32_t)) {
  std::vector<double> finite;
  for (std::uint32_t bits = 0; bits <= largest_finite; ++bits) {
    finite.push_back(std::bit_cast<float>(widen(bits)));
  }
  // Around every value: itself, both sides of the tie to the next, the tie; and patterns at random.
  std::vector<float> values;
  const auto push = [&](std::uint32_t bits) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(std::bit_cast<float>(bits | 0x80000000u));
  };
  const RandomStream random(3, "patterns");
  for (std::uint32_t bits = 0; bits <= largest_finite; bits += 7) {
    const double high =
        bits < largest_finite ? finite[bits + 1] : 2 * finite[bits] - finite[bits - 1];
    const auto tie =
        std::bit_cast<std::uint32_t>(static_cast<float>(finite[bits] + (high - finite[bits]) / 2));
    for (const std::uint32_t near : {tie - 1, tie, tie + 1, widen(bits)}) push(near);
    push(random.bits(bits) & 0x7fffffffu);
  }
  for (const std::uint32_t special :
       {0x7f800000u, 0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0x7f812345u, 0u, 1u, 0x00400000u,
        0x7f7fffffu, 0x477fefffu, 0x477ff000u}) {
    push(special);
  }
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor x = Tensor::from(values, {count}), y = test::poisoned({count}, to);
  cast(y, x);
  const auto patterns = y.to_vector<T>();
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    wrong += patterns[i].bits != narrowed_pattern(values[i], to, finite);
  }
  INFO(name_of(to) << " of " << count << " values");
  REQUIRE(wrong == 0);
}

}  // namespace

TEST_CASE("cast widens every 16-bit pattern to the value it stands for, NaN's bits included") {
  const test::Rank rank;
  const auto bf16 = widened_patterns<bfloat16>(), f16 = widened_patterns<float16>();
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    wrong += bf16[bits] != f32_of_bf16(bits);
    wrong += f16[bits] != f32_of_f16(bits);
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("cast narrows to the nearest value, ties to even, subnormals and NaN's bits included") {
  const test::Rank rank;
  check_narrowing<bfloat16>(DType::bf16, 0x7f7fu, f32_of_bf16);
  check_narrowing<float16>(DType::f16, 0x7bffu, f32_of_f16);
}

TEST_CASE("cast: the same bits wherever tensors begin, and under every schedule") {
  for (const DType from : test::kFloating) {
    for (const DType to : test::kFloating) {
      test::require_equal_under_every_schedule([&] {
        const Tensor x = test::normal_tensor({1027}, from, "x"), y = test::poisoned({1027}, to);
        cast(y, x);
        for (const int off : {1, 2, 3}) {
          const Tensor z = test::poisoned({1027}, to);
          const Tensor there = off & 1 ? test::unaligned(z) : z;
          cast(there, off & 2 ? test::unaligned(x) : x);
          REQUIRE(test::same_bits(there, y));
        }
        return test::bytes_of(y);
      });
    }
  }
}

TEST_CASE("cast_all gives every pair the bits of cast, for many tensors of any size and place") {
  for (const DType from : test::kFloating) {
    for (const DType to : test::kFloating) {
      test::require_equal_under_every_schedule([&] {
        // More tensors than one launch holds, tails shorter than four, several chunks, none.
        std::vector<Tensor> xs, ys, expected;
        for (std::int64_t i = 0; i < 200; ++i) {
          const std::int64_t count = i == 0 ? 20'003 : i == 7 ? 8192 : i % 11;
          xs.push_back(test::normal_tensor({count}, from, "x" + std::to_string(i)));
          ys.push_back(test::poisoned({count}, to));
          if (i % 3 == 1) xs.back() = test::unaligned(xs.back());
          if (i % 5 == 1) ys.back() = test::unaligned(ys.back());
          expected.push_back(Tensor::empty({count}, to));
          if (from == to) {
            expected.back().copy_from(xs.back());
          } else {
            cast(expected.back(), xs.back());
          }
        }
        cast_all(ys, xs);
        std::vector<std::uint8_t> bytes;
        for (std::size_t i = 0; i < ys.size(); ++i) {
          REQUIRE(test::same_bits(ys[i], expected[i]));
          for (const std::uint8_t byte : test::bytes_of(ys[i])) bytes.push_back(byte);
        }
        return bytes;
      });
    }
  }
}

TEST_CASE("cast between equal dtypes copies the bits, those of signalling NaNs too") {
  const test::Rank rank;
  const Tensor bf16 = every_pattern<bfloat16>(), f16 = every_pattern<float16>();
  for (const Tensor& x : {bf16, f16}) {
    const Tensor y = test::poisoned(x.shape(), x.dtype());
    cast(y, x);
    REQUIRE(test::same_bits(y, x));
  }
}

TEST_CASE("cast_all takes empty lists and pairs of different shapes") {
  const test::Rank rank;
  cast_all({}, {});
  const Tensor x = test::normal_tensor({2, 3}, DType::f32, "x");
  const std::vector<Tensor> ys = {test::poisoned({6}, DType::bf16)}, xs = {x};
  cast_all(ys, xs);
  const Tensor expected = test::poisoned({2, 3}, DType::bf16);
  cast(expected, x);
  REQUIRE(test::same_bits(ys[0], expected.reshape({6})));
}

TEST_CASE("cast_all names the pair that does not fit") {
  const test::Rank rank;
  const Tensor a = Tensor::zeros({4}, DType::f32), b = Tensor::zeros({4}, DType::bf16);
  const auto message = [](const std::vector<Tensor>& ys, const std::vector<Tensor>& xs) {
    try {
      cast_all(ys, xs);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  REQUIRE(message({a, a}, {b}) ==
          "cast_all: ys has 2 tensors and xs has 1; they must have equally many");
  REQUIRE(message({a, a}, {b, b.slice(0, 3)}) ==
          "cast_all: ys[1] is f32 [4] and xs[1] is bf16 [3]; their element counts must be equal");
  REQUIRE(message({a, b}, {b, a}) ==
          "cast_all: ys[1] is bf16 [4] and ys[0] is f32 [4]; their dtypes must be equal");
  REQUIRE(message({b, b}, {a, b}) ==
          "cast_all: xs[1] is bf16 [4] and xs[0] is f32 [4]; their dtypes must be equal");
  REQUIRE(message({a, a}, {b, Tensor()}) ==
          "cast_all: xs[1] is an undefined tensor; allocate it first");
  REQUIRE(message({a}, {a}) == "cast_all: ys[0] overlaps xs[0]; give it memory of its own");
  const Tensor integers = Tensor::zeros({4}, DType::i32);
  REQUIRE(message({integers}, {a}) ==
          "cast_all: ys[0] is i32 [4]; its dtype must be f32, bf16, f16 or f64");
}

TEST_CASE("widened copies 16-bit tensors to f32 in the workspace, and others not at all") {
  test::Rank rank;
  const auto workspace = [&] {
    return rank.context.allocator().account()[Category::workspace].current;
  };
  for (const DType dtype : test::kFloating) {
    const Tensor x = test::normal_tensor({3, 5}, dtype, "x");
    const Tensor wide = widened(x);
    REQUIRE(wide.dtype() == (dtype == DType::f64 ? DType::f64 : DType::f32));
    REQUIRE(test::to_doubles(wide) == test::to_doubles(x));
    REQUIRE((wide.raw() == x.raw()) == (size_of(dtype) != 2));
    REQUIRE(workspace() == (size_of(dtype) == 2 ? 4 * 15 : 0));
  }
}

TEST_CASE("cast refuses integers and unequal shapes") {
  const test::Rank rank;
  const Tensor y = Tensor::zeros({2, 3}, DType::f32);
  REQUIRE_THROWS_WITH(cast(y, Tensor::zeros({2, 3}, DType::i32)),
                      Catch::Contains("cast: x is i32 [2, 3]; its dtype must be f32"));
  REQUIRE_THROWS_WITH(cast(y, Tensor::zeros({6}, DType::bf16)),
                      Catch::Contains("shapes must be equal"));
  REQUIRE_THROWS_WITH(cast(y, y), Catch::Contains("cast: y overlaps x"));
}

}  // namespace tessera
