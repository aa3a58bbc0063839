#include "kernels/dropout/op.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::normal_tensor;
using test::same_bits;
using test::to_doubles;

const RandomStream kStream(11, "block.3.dropout", 5, 2);

}  // namespace

TEST_CASE("dropout: element i is dropped if uniform(i) is below the probability, else scaled") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t count : {0, 1, 3, 255, 1027, 40001}) {
      for (const float probability : {0.0f, 0.1f, 0.5f, 0.9f}) {
        const Tensor x = normal_tensor({count}, dtype, "x");
        const Tensor y = normal_tensor({count}, dtype, "y");
        dropout(y, x, probability, kStream);
        const auto before = to_doubles(x), after = to_doubles(y);
        const double scale = 1.0 / (1.0 - static_cast<double>(probability));
        const double rounding = dtype == DType::bf16  ? 0x1p-8
                                : dtype == DType::f16 ? 0x1p-11
                                                      : 2e-7;
        int wrong = 0;
        for (std::int64_t i = 0; i < count; ++i) {
          const bool dropped = kStream.uniform(static_cast<std::uint64_t>(i)) < probability;
          const double expected = dropped ? 0.0 : before[i] * scale;
          // The smallest values have the absolute error of half a step of f16's subnormals.
          wrong += std::fabs(after[i] - expected) > std::fabs(expected) * rounding + 0x1p-25;
        }
        INFO(name_of(dtype) << " " << count << " " << probability);
        REQUIRE(wrong == 0);
      }
    }
  }
}

TEST_CASE("dropout: a probability equal to an element's number keeps it, the next one drops it") {
  const test::Rank rank;
  const Tensor x = Tensor::from(std::vector<float>(9, 1.0f), {9}),
               y = Tensor::empty({9}, DType::f32);
  for (const std::int64_t i : {0, 3, 6, 8}) {
    const float number = kStream.uniform(static_cast<std::uint64_t>(i));
    dropout(y, x, number, kStream);
    CHECK(y.to_vector<float>()[i] != 0.0f);
    dropout(y, x, std::nextafter(number, 1.0f), kStream);
    CHECK(y.to_vector<float>()[i] == 0.0f);
  }
}

TEST_CASE("dropout: the same bits under every schedule, in place, and wherever tensors begin") {
  for (const DType dtype : test::kFloating) {
    test::require_equal_under_every_schedule([&] {
      const Tensor x = normal_tensor({40'001}, dtype, "x");
      const Tensor y = x.clone(), z = test::unaligned(x), last = test::poisoned({40'001}, dtype);
      dropout(y, y, 0.3f, kStream);
      dropout(z, z, 0.3f, kStream);
      dropout(last, test::unaligned(x), 0.3f, kStream);
      REQUIRE(same_bits(z, y));
      REQUIRE(same_bits(last, y));
      return test::bytes_of(y);
    });
  }
}

TEST_CASE("dropout: the mask is a function of all bits of the seed, the stream and the index") {
  const test::Rank rank;
  const Tensor ones = Tensor::from(std::vector<float>(256, 1.0f), {256});
  for (const std::uint64_t seed : {std::uint64_t{1} << 40, std::uint64_t{1}}) {
    for (const std::uint64_t name : {std::uint64_t{1} << 50, std::uint64_t{0xffffffff}}) {
      const RandomStream stream(seed, name);
      const Tensor y = Tensor::empty({256}, DType::f32);
      dropout(y, ones, 0.5f, stream);
      const auto values = to_doubles(y);
      int wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        wrong += (values[i] == 0.0) != (stream.uniform(i) < 0.5f);
      }
      REQUIRE(wrong == 0);
    }
  }
}

TEST_CASE("dropout: a part has the mask of its place in the whole") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const Tensor x = normal_tensor({1'003}, dtype, "x"), whole = x.clone(), parts = x.clone();
    dropout(whole, x, 0.4f, kStream);
    for (const auto& [begin, end] :
         {std::pair<std::int64_t, std::int64_t>(0, 4), {4, 516}, {516, 1'003}}) {
      dropout(parts.slice(begin, end), x.slice(begin, end), 0.4f, kStream, begin);
    }
    REQUIRE(same_bits(parts, whole));
  }
  const Tensor x = Tensor::zeros({8}, DType::f32);
  REQUIRE_THROWS_WITH(dropout(x, x, 0.1f, kStream, 6), Contains("expected a multiple of 4"));
}

TEST_CASE("dropout: a dropped infinity or NaN is 0, a kept one stays") {
  const test::Rank rank;
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from(std::vector<float>(64, infinity), {64});
  dropout(x, x, 0.5f, kStream);
  const auto values = to_doubles(x);
  for (std::size_t i = 0; i < values.size(); ++i) {
    REQUIRE(values[i] == (kStream.uniform(i) < 0.5f ? 0.0 : infinity));
  }
}

TEST_CASE("dropout: wrong arguments are named") {
  const test::Rank rank;
  const Tensor x = Tensor::zeros({8}, DType::f32);
  REQUIRE_THROWS_WITH(dropout(x, x, 1.0f, kStream), Contains("probability is 1"));
  REQUIRE_THROWS_WITH(dropout(x, x, -0.1f, kStream), Contains("probability is -0.1"));
  REQUIRE_THROWS_WITH(dropout(Tensor::zeros({7}, DType::f32), x, 0.1f, kStream),
                      Contains("dropout: y is f32 [7] and x is f32 [8]"));
  REQUIRE_THROWS_WITH(dropout(x.slice(1, 8), x.slice(0, 7), 0.1f, kStream), Contains("overlaps"));
}

}  // namespace tessera
