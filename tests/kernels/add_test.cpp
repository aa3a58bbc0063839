#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/add/op.h"
#include "runtime/error.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
using test::to_doubles;

TEST_CASE("add is the sum of the rounded inputs, rounded once, in every dtype and size") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t n : {0, 1, 33, 16 * 1024 + 7}) {
      const Tensor a = test::normal_tensor({n}, dtype, "a"),
                   b = test::normal_tensor({n}, dtype, "b");
      const Tensor y = test::poisoned({n}, dtype);
      add(y, a, b);
      auto expected = to_doubles(a);
      const auto other = to_doubles(b);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += other[i];
      // The f32 sum is rounded itself before it is rounded to 16 bits.
      REQUIRE(test::worst_error(to_doubles(y), expected, 1e-6) <=
              1.001 * test::unit_roundoff(dtype));
    }
  }
}

TEST_CASE("add works in place on either side") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const Tensor a = test::normal_tensor({5, 41}, dtype, "a"),
                 b = test::normal_tensor({5, 41}, dtype, "b");
    const Tensor y = Tensor::empty({5, 41}, dtype);
    add(y, a, b);
    const Tensor left = a.clone(), right = b.clone(), twice = a.clone();
    add(left, left, b);
    add(right, a, right);
    add(twice, twice, twice);
    REQUIRE(test::same_bits(left, y));
    REQUIRE(test::same_bits(right, y));
    auto doubled = to_doubles(a);
    for (double& value : doubled) value *= 2.0;
    REQUIRE(to_doubles(twice) == doubled);
  }
}

TEST_CASE("add: the same bits wherever tensors begin, and under every schedule") {
  for (const DType dtype : test::kFloating) {
    test::require_equal_under_every_schedule([&] {
      const Tensor a = test::normal_tensor({1027}, dtype, "a"),
                   b = test::normal_tensor({1027}, dtype, "b");
      const Tensor y = test::poisoned({1027}, dtype);
      add(y, a, b);
      for (const int off : {1, 2, 4, 7}) {
        const auto placed = [&](const Tensor& tensor, int bit) {
          return off & bit ? test::unaligned(tensor) : tensor;
        };
        const Tensor z = placed(test::poisoned({1027}, dtype), 1);
        add(z, placed(a, 2), placed(b, 4));
        REQUIRE(test::same_bits(z, y));
      }
      return test::bytes_of(y);
    });
  }
}

TEST_CASE("add_all gives every pair the bits of add, for many tensors of any size and place") {
  for (const DType dtype : test::kFloating) {
    test::require_equal_under_every_schedule([&] {
      std::vector<Tensor> sums, addends, expected;
      for (std::int64_t i = 0; i < 200; ++i) {
        const std::int64_t count = i == 0 ? 20'003 : i == 7 ? 8192 : i % 11;
        sums.push_back(test::normal_tensor({count}, dtype, "sum" + std::to_string(i)));
        addends.push_back(test::normal_tensor({count}, dtype, "addend" + std::to_string(i)));
        expected.push_back(test::poisoned({count}, dtype));
        add(expected.back(), sums.back(), addends.back());
        if (i % 3 == 1) sums.back() = test::unaligned(sums.back());
        if (i % 5 == 1) addends.back() = test::unaligned(addends.back());
      }
      add_all(sums, addends);
      std::vector<std::uint8_t> bytes;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        REQUIRE(test::same_bits(sums[i], expected[i]));
        for (const std::uint8_t byte : test::bytes_of(sums[i])) bytes.push_back(byte);
      }
      return bytes;
    });
  }
}

TEST_CASE("add_all adds 16-bit tensors to f32 sums exactly") {
  const test::Rank rank;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor addend = test::normal_tensor({4099}, dtype, "addend");
    const std::vector<Tensor> sums = {Tensor::full({4099}, DType::f32, 1.0)}, addends = {addend};
    add_all(sums, addends);
    auto expected = to_doubles(addend);
    for (double& value : expected) value = static_cast<float>(1.0 + value);
    REQUIRE(to_doubles(sums[0]) == expected);
  }
}

TEST_CASE("add_all names the pair that does not fit") {
  const test::Rank rank;
  add_all({}, {});
  const Tensor f32 = Tensor::zeros({4}, DType::f32), bf16 = Tensor::zeros({4}, DType::bf16);
  const auto message = [](const std::vector<Tensor>& sums, const std::vector<Tensor>& addends) {
    try {
      add_all(sums, addends);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  REQUIRE(message({f32}, {}) ==
          "add_all: sums has 1 tensors and addends has 0; they must have equally many");
  REQUIRE(message({f32, f32}, {bf16, bf16.slice(1, 4)}) ==
          "add_all: sums[1] is f32 [4] and addends[1] is bf16 [3]; their element counts must be "
          "equal");
  REQUIRE(message({bf16}, {f32}) ==
          "add_all: sums[0] is bf16 [4] and addends[0] is f32 [4]; sums[0] must have the same "
          "dtype, or f32 if addends[0] has 16 bits");
  REQUIRE(message({f32}, {f32}) ==
          "add_all: sums[0] overlaps addends[0]; give it memory of its own");
}

TEST_CASE("add refuses arguments that do not fit together") {
  const test::Rank rank;
  const Tensor y = Tensor::zeros({2, 3}, DType::f32);
  REQUIRE_THROWS_WITH(add(y, Tensor::zeros({3, 2}, DType::f32), y),
                      Catch::Contains("add: y is f32 [2, 3] and a is f32 [3, 2]"));
  REQUIRE_THROWS_WITH(add(y, y, Tensor::zeros({2, 3}, DType::f16)),
                      Catch::Contains("dtypes must be equal"));
  const Tensor integers = Tensor::zeros({2, 3}, DType::i32);
  REQUIRE_THROWS_WITH(add(integers, integers, integers), Catch::Contains("must be f32"));
  REQUIRE_THROWS_WITH(add(y, y, Tensor()), Catch::Contains("b is an undefined tensor"));
  const Tensor rows = Tensor::zeros({3, 2}, DType::f32);
  REQUIRE_THROWS_WITH(add(rows.slice(0, 2), rows.slice(1, 3), rows.slice(0, 2)),
                      Catch::Contains("add: y overlaps a in part"));
}

}  // namespace tessera
