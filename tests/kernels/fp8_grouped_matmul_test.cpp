// Grouped products of 8-bit factors, against float64 products of the numbers that they hold.
#include <catch2/catch.hpp>
#include <numeric>

#include "kernels/grouped_matmul/factor.h"
#include "kernels/swiglu/op.h"
#include "tests/kernels/fp8_factor.h"
#include "tests/kernels/product_reference.h"
#include "tests/support/device.h"
#include "tests/support/precision.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::fp8_factor;
using test::same_bits;

/// The rows of each expert, and the extents of its matrix.
struct Size {
  std::vector<std::int32_t> counts;
  std::int64_t in, out;
};

/// A layer of experts with weights [E, out, in] or [E, in, out].
struct Layer {
  Size s;
  Transpose transpose;
  Tensor offsets;
  Factor x, weight;

  explicit Layer(const Size& size, Transpose t = Transpose::yes, DType format = DType::e4m3)
      : s(size),
        transpose(t),
        offsets(offsets_of(size.counts)),
        x(fp8_factor({rows(), s.in}, format, "x", 64.0)),
        weight(fp8_factor(
            t == Transpose::yes ? Shape{experts(), s.out, s.in} : Shape{experts(), s.in, s.out},
            DType::e4m3, "weight", 128.0)) {}

  static Tensor offsets_of(const std::vector<std::int32_t>& counts) {
    std::vector<std::int32_t> ends{0};
    for (const std::int32_t count : counts) ends.push_back(ends.back() + count);
    return Tensor::from(ends, {std::ssize(ends)});
  }
  std::int64_t experts() const { return std::ssize(s.counts); }
  std::int64_t rows() const { return std::accumulate(s.counts.begin(), s.counts.end(), 0); }
  Tensor empty(std::int64_t columns) const {
    return test::poisoned({rows(), columns}, DType::bf16);
  }

  Tensor y() const {
    const Tensor y = empty(s.out);
    grouped_matmul(y, x, weight, offsets, transpose);
    return y;
  }
  /// Against float64 products of the numbers.
  double error_of(const Tensor& y) const {
    test::ProductReference all;
    const Tensor wide = expanded(x), matrices = expanded(weight);
    std::int64_t row = 0;
    for (std::int64_t e = 0; e < experts(); ++e) {
      const std::int64_t end = row + s.counts[e];
      const Tensor matrix = matrices.slice(e, e + 1);
      all.append(test::product_reference(wide.slice(row, end),
                                         matrix.reshape({matrix.size(1), matrix.size(2)}),
                                         Transpose::no, transpose));
      row = end;
    }
    return test::relative_error(test::to_doubles(y), all.value);
  }
  /// Whether a GPU's tensor cores take the factors as they are stored.
  bool as_stored(const Tensor& y, const Tensor& gated = {}) const {
    if constexpr (!kHasCuda) return false;
    return test::kOnGpu && cuda::fp8_grouped_matmul(gated, y, x, weight, offsets, transpose);
  }
};

// Tails of rows, columns and depths; several rounds of tiles; pairs of tiles below each other; shapes that only the
// expanded product takes.
const std::vector<Size> kSizes = {
    {{1}, 16, 16},      {{3, 0, 5}, 48, 24},  {{129, 0, 2, 64}, 144, 136}, {{130, 0, 7}, 272, 520},
    {{40, 3}, 400, 24}, {{100, 900}, 80, 40}, {{3, 0, 5}, 7, 9},           {{70, 1}, 24, 16},
    {{0, 0}, 16, 16},   {{2, 3}, 0, 16}};

bool suits(const Size& s) {
  return s.in % 16 == 0 && s.in > 0 && s.out % 8 == 0;
}

}  // namespace

TEST_CASE("8-bit grouped products: every expert's rows, in both layouts of the weight") {
  for (const Size& size : kSizes) {
    for (const Transpose transpose : {Transpose::yes, Transpose::no}) {
      for (const DType format : {DType::e4m3, DType::e5m2}) {
        CAPTURE(size.counts, size.in, size.out, transpose == Transpose::yes, name_of(format));
        test::for_every_schedule([&] {
          const Layer layer(size, transpose, format);
          CHECK(layer.error_of(layer.y()) < test::kFp8Bound);
        });
      }
    }
  }
}

TEST_CASE("8-bit grouped products: Hopper takes rows of multiples of 16 depths as they are") {
  for (const Size& size : kSizes) {
    CAPTURE(size.counts, size.in, size.out);
    const test::Rank rank;
    const Layer layer(size);
    if (layer.rows() == 0) continue;
    const bool hopper = test::kOnGpu && suits(size);
    const Tensor y = layer.empty(size.out);
    CHECK(layer.as_stored(y) == hopper);
    if (!hopper) continue;
    CHECK(layer.error_of(y) < test::kFp8Bound);
    CHECK_FALSE(Layer(size, Transpose::no).as_stored(y));
    CHECK_FALSE(Layer(size, Transpose::yes, DType::e5m2).as_stored(y));
    CHECK_FALSE(layer.as_stored(test::unaligned(y)));
  }
}

TEST_CASE("8-bit grouped products: gate, up and their SwiGLU are the product and swiglu") {
  for (const Size& size : {Size{{129, 0, 2}, 48, 48},
                           {{5, 130}, 144, 272},
                           {{70}, 272, 528},
                           {{3, 5}, 24, 16},
                           {{9}, 16, 24}}) {
    CAPTURE(size.counts, size.in, size.out);
    test::for_every_schedule([&] {
      const Layer layer(size);
      const Tensor gate_up = layer.empty(size.out), y = layer.empty(size.out / 2),
                   expected = y.clone();
      grouped_matmul_swiglu(y, gate_up, layer.x, layer.weight, layer.offsets, Transpose::yes);
      CHECK(same_bits(gate_up, layer.y()));
      swiglu_forward(expected, first_half(gate_up), second_half(gate_up));
      CHECK(same_bits(y, expected));
    });
  }
}

TEST_CASE("8-bit grouped products: a row's bits do not depend on the rows next to it") {
  const test::Rank rank;
  const Layer all({{100, 1828}, 80, 136}), few({{100, 130}, 80, 136});
  const Tensor some = few.empty(136);
  grouped_matmul(some, {all.x.values.slice(0, 230), all.x.inverse_scale}, all.weight, few.offsets,
                 Transpose::yes);
  CHECK(same_bits(all.y().slice(0, 230), some));
}

TEST_CASE("8-bit grouped products: groups of several ranks, and rows behind the last") {
  const test::Rank rank;
  const Layer layer({{70, 5, 20}, 48, 40});
  const auto product = [&](const std::vector<std::int32_t>& counts) {
    const Tensor y = layer.empty(40);
    grouped_matmul(y, layer.x, layer.weight, Layer::offsets_of(counts), Transpose::yes);
    return y;
  };
  // Rows 0 to 9 and 60 to 64 are the first matrix's, 10 to 59 and 65 to 69 the second's.
  const Tensor y = product({10, 50, 0, 5, 5, 0});
  CHECK(same_bits(y.slice(0, 10), product({95, 0, 0}).slice(0, 10)));
  CHECK(same_bits(y.slice(10, 60), product({0, 95, 0}).slice(10, 60)));
  CHECK(same_bits(y.slice(60, 65), product({95, 0, 0}).slice(60, 65)));
  CHECK(same_bits(y.slice(65, 70), product({0, 95, 0}).slice(65, 70)));
  CHECK(same_bits(y.slice(70, 95), layer.empty(40).slice(70, 95)));
}

TEST_CASE("8-bit grouped products keep NaNs, and the smallest and largest numbers") {
  const test::Rank rank;
  constexpr std::int64_t kDepth = 32, kColumns = 16;
  // Row r of x has the number with code r at depth 0, and W's column c begins with 2^(c - 6).
  std::vector<std::uint8_t> codes(256 * kDepth, 0), powers(kColumns * kDepth, 0);
  for (std::size_t r = 0; r < 256; ++r) codes[r * kDepth] = static_cast<std::uint8_t>(r);
  for (std::size_t c = 0; c < kColumns; ++c) {
    powers[c * kDepth] = static_cast<std::uint8_t>((c + 1) % 15 << 3);
  }
  const Tensor one = Tensor::full({1}, DType::f32, 1.0);
  const auto of_codes = [](const std::vector<std::uint8_t>& values, const Shape& shape) {
    const Tensor bytes = Tensor::from(values, shape), y = Tensor::zeros(shape, DType::e4m3);
    Tensor::view(y.storage(), 0, shape, DType::u8).copy_from(bytes);
    return y;
  };
  const Factor x(of_codes(codes, {256, kDepth}), one),
      weight(of_codes(powers, {1, kColumns, kDepth}), one);
  const Tensor y = test::poisoned({256, kColumns}, DType::bf16), expected = y.clone();
  const Tensor offsets = Layer::offsets_of({256});
  grouped_matmul(y, x, weight, offsets, Transpose::yes);
  grouped_matmul(expected, expanded(x), expanded(weight), offsets, Transpose::yes);
  const auto found = test::to_doubles(y), values = test::to_doubles(expected);
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK((found[i] == values[i] || (std::isnan(found[i]) && std::isnan(values[i]))));
  }
}

TEST_CASE("8-bit grouped products refuse one factor in 8 bits, and shapes that do not fit") {
  const test::Rank rank;
  const Layer layer({{3, 5}, 16, 16});
  const Tensor y = layer.empty(16);
  CHECK_THROWS_WITH(
      grouped_matmul(y, layer.x, expanded(layer.weight), layer.offsets, Transpose::yes),
      Contains("a product of 8-bit numbers needs two 8-bit factors"));
  CHECK_THROWS_WITH(
      grouped_matmul(layer.empty(8), layer.x, layer.weight, layer.offsets, Transpose::yes),
      Contains("c is bf16 [8, 8]; its shape must be [8, 16]"));
}

}  // namespace tessera
