#include "kernels/nf4/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "kernels/cast/op.h"
#include "kernels/nf4/format.h"
#include "kernels/nf4/pack.h"
#include "runtime/safetensors.h"
#include "tests/support/paths.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Values = std::vector<double>;

ReadElements reader(const std::vector<float>& values) {
  return [&values](const Tensor& to, std::int64_t first) {
    std::copy_n(values.begin() + first, to.numel(), to.data<float>());
  };
}

Tensor packed(const std::vector<float>& values, const Shape& shape) {
  const Tensor bytes = Tensor::empty(nf4_packed_shape(shape), DType::u8);
  nf4_pack(bytes, {}, shape, reader(values));
  return bytes;
}

float float_at(const Bytes& bytes, std::int64_t place) {
  float value;
  std::memcpy(&value, bytes.data() + place, sizeof value);
  return value;
}

/// Rows of very different sizes, so that scales differ.
std::vector<float> weights(const Shape& shape) {
  std::vector<float> values;
  const Values normal = test::normal_values("nf4", shape.numel());
  for (std::size_t i = 0; i < normal.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(shape[-1]);
    values.push_back(static_cast<float>(normal[i] * std::exp2(static_cast<double>(row % 7))));
  }
  return values;
}

/// A row's parts as op.h describes them. `first_block`: of the row, in its matrix.
struct Row {
  Bytes bytes;
  std::int64_t first_block, blocks;

  int code(std::int64_t i) const { return bytes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15; }
  /// In f32, as op.h says: where the mean cancels, rounding shows.
  float scale(std::int64_t block) const {
    const std::int64_t mean = (33 * blocks + 3) / 4 * 4;
    const std::int64_t group = (first_block + block) / 256 - first_block / 256;
    const std::uint8_t code = bytes[32 * blocks + block];
    return kNf4ScaleValues[code] * float_at(bytes, mean + 4 + 4 * group) + float_at(bytes, mean);
  }
};

Row row_of(const Bytes& bytes, const Shape& shape, std::int64_t row) {
  const std::int64_t size = nf4_packed_shape(shape)[-1], blocks = (shape[-1] + 63) / 64;
  return {{bytes.begin() + row * size, bytes.begin() + (row + 1) * size},
          row % shape[-2] * blocks,
          blocks};
}

Values reference(const Bytes& bytes, const Shape& shape) {
  Values values;
  for (std::int64_t row = 0; row < shape.numel() / shape[-1]; ++row) {
    const Row here = row_of(bytes, shape, row);
    for (std::int64_t i = 0; i < shape[-1]; ++i) {
      values.push_back(double{kNf4Values[here.code(i)]} * double{here.scale(i / 64)});
    }
  }
  return values;
}

/// Short blocks, odd rows, a stack, groups that end within a matrix and a row, rows longer than a group.
const std::vector<Shape> kShapes = {{1, 1},     {3, 5},    {2, 64},     {7, 130},
                                    {3, 4, 66}, {300, 72}, {5, 6, 700}, {2, 16640}};

}  // namespace

TEST_CASE("nf4: tables, codes, scales and values are those of bitsandbytes") {
  const test::Rank rank;
  const SafetensorsFile file(TESSERA_SOURCE_DIR "/tests/golden/nf4/nf4.safetensors");
  const auto floats = [&](const std::string& name) { return file.tensor(name).to_vector<float>(); };
  CHECK(std::ranges::equal(floats("values"), kNf4Values));
  CHECK(std::ranges::equal(floats("scale_values"), kNf4ScaleValues));
  for (const std::string name : {"rows", "long", "odd"}) {
    CAPTURE(name);
    const Tensor stored = file.tensor(name + ".weight");
    const Shape shape = stored.shape();
    const Tensor weight = Tensor::empty_on_host(shape, DType::f32);
    cast(weight, stored);
    const Tensor bytes = packed(weight.to_vector<float>(), shape);
    const Bytes codes = file.tensor(name + ".codes").to_vector<std::uint8_t>();
    const Bytes scales = file.tensor(name + ".scales").to_vector<std::uint8_t>();
    const std::vector<float> ranges = floats(name + ".ranges");
    const Nf4Row layout(shape[1]);
    for (std::int64_t i = 0; i < shape[0]; ++i) {
      const Row row = row_of(bytes.to_vector<std::uint8_t>(), shape, i);
      const auto begin = row.bytes.begin();
      CHECK(std::equal(begin, begin + shape[1] / 2, codes.begin() + i * shape[1] / 2));
      CHECK(std::equal(begin + layout.scales, begin + layout.scales + row.blocks,
                       scales.begin() + i * row.blocks));
      CHECK(float_at(row.bytes, layout.mean) == Approx(floats(name + ".mean")[0]).epsilon(1e-6));
      for (std::int64_t block = 0; block < row.blocks; ++block) {
        const std::int64_t group = (row.first_block + block) / 256;
        CHECK(float_at(row.bytes, layout.ranges + 4 * layout.group_of(i, block)) ==
              Approx(ranges[static_cast<std::size_t>(group)]).epsilon(1e-6));
      }
    }
    const Tensor y = test::poisoned(shape, DType::f32);
    nf4_unpack(y, bytes);
    const auto expected = test::to_doubles(file.tensor(name + ".unpacked"));
    CHECK(test::worst_error(test::to_doubles(y), expected, 1e-6) < 2e-6);
  }
}

TEST_CASE("nf4_unpack multiplies values and scales, and rounds once to any dtype") {
  const test::Rank rank;
  for (const Shape& shape : kShapes) {
    const Tensor bytes = packed(weights(shape), shape);
    const Values expected = reference(bytes.to_vector<std::uint8_t>(), shape);
    for (const DType dtype : test::kFloating) {
      CAPTURE(to_string(shape), name_of(dtype));
      const Tensor y = test::poisoned(shape, dtype);
      nf4_unpack(y, bytes);
      // The product is rounded to f32 first.
      CHECK(test::worst_error(test::to_doubles(y), expected, 0x1p-14) <=
            test::unit_roundoff(dtype) + 1.1 * 0x1p-24);
      const Tensor again = test::unaligned(test::poisoned(shape, dtype));
      nf4_unpack(again, bytes);
      CHECK(test::same_bits(again, y));
    }
  }
}

TEST_CASE("nf4_unpack has the same bits under every schedule") {
  for (const DType dtype : test::kFloating) {
    test::require_equal_under_every_schedule([&] {
      const Shape shape = {3, 50, 1000};
      const Tensor bytes = packed(weights(shape), shape), y = test::poisoned(shape, dtype);
      nf4_unpack(y, bytes);
      return test::bytes_of(y);
    });
  }
}

TEST_CASE("nf4_pack takes the nearest value of every element, and of its block's scale") {
  const test::Rank rank;
  for (const Shape& shape : kShapes) {
    CAPTURE(to_string(shape));
    const std::vector<float> values = weights(shape);
    const Bytes bytes = packed(values, shape).to_vector<std::uint8_t>();
    const std::int64_t columns = shape[-1];
    for (std::int64_t r = 0; r < shape.numel() / columns; ++r) {
      const Row row = row_of(bytes, shape, r);
      for (std::int64_t i = 0; i < columns; ++i) {
        const std::int64_t first = r * columns + i / 64 * 64;
        const std::int64_t end = std::min(first + 64, (r + 1) * columns);
        double scale = 0.0;
        for (std::int64_t j = first; j < end; ++j)
          scale = std::max(scale, std::fabs(double{values[j]}));
        const double w = values[r * columns + i] / scale;
        double least = 2.0;
        for (const float value : kNf4Values) least = std::min(least, std::fabs(w - value));
        REQUIRE(std::fabs(w - kNf4Values[row.code(i)]) <= least + 1e-6);
        // The values of scales are at most 0.7 % of the range from each other's middle.
        REQUIRE(row.scale(i / 64) == Approx(scale).margin(0.0075 * 256));
      }
    }
  }
}

TEST_CASE("nf4_pack: a block of zeros stays zeros, and equal scales are exact") {
  const test::Rank rank;
  std::vector<float> values(3 * 128, 0.5f);
  std::fill(values.begin() + 128, values.begin() + 192, 0.0f);
  const Tensor y = test::poisoned({3, 128}, DType::f32);
  nf4_unpack(y, packed(values, {3, 128}));
  const std::vector<float> unpacked = y.to_vector<float>();
  CHECK(std::all_of(unpacked.begin() + 128, unpacked.begin() + 192,
                    [](float value) { return value == 0.0f; }));
  const std::vector<float> equal(64, -0.3f);
  const Tensor one = test::poisoned({1, 64}, DType::f32);
  nf4_unpack(one, packed(equal, {1, 64}));
  CHECK(one.to_vector<float>() == equal);
}

TEST_CASE("nf4_pack gives any part the bytes of the whole") {
  const test::Rank rank;
  const Shape shape = {3, 5, 200};
  const std::vector<float> values = weights(shape);
  const Bytes whole = packed(values, shape).to_vector<std::uint8_t>();
  const auto size = static_cast<std::int64_t>(whole.size());
  const std::int64_t row = nf4_packed_shape(shape)[2];
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, size},
                                     {7, 1},
                                     {row - 3, 5},
                                     {5 * row - 1, 2},
                                     {4 * row + 13, 6 * row + 11},
                                     {size - 9, 9},
                                     {3, 0}}) {
    const Tensor part = Tensor::empty({count}, DType::u8);
    nf4_pack(part, {.first = first}, shape, reader(values));
    CHECK(part.to_vector<std::uint8_t>() ==
          Bytes(whole.begin() + first, whole.begin() + first + count));
  }
}

TEST_CASE("nf4_unpack refuses other dtypes and shapes") {
  const test::Rank rank;
  const Tensor y = Tensor::zeros({2, 64}, DType::f32);
  CHECK_THROWS_WITH(nf4_unpack(y, Tensor::zeros({2, 48}, DType::f32)),
                    Catch::Contains("nf4_unpack: packed is f32 [2, 48]"));
  CHECK_THROWS_WITH(nf4_unpack(y, Tensor::zeros({2, 32}, DType::u8)),
                    Catch::Contains("nf4_unpack: packed is u8 [2, 32]"));
  CHECK_THROWS_WITH(
      nf4_unpack(Tensor::zeros({2, 64}, DType::i32), Tensor::zeros({2, 48}, DType::u8)),
      Catch::Contains("nf4_unpack: y is i32 [2, 64]"));
  CHECK_THROWS_WITH(nf4_packed_shape({64}),
                    Catch::Contains("nf4 packs matrices, not a tensor of shape [64]"));
}

}  // namespace tessera
