#include "kernels/columns/op.h"

#include <catch2/catch.hpp>

#include "kernels/cast/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

using Catch::Contains;
using test::normal_tensor;
using test::to_doubles;

TEST_CASE("copy_columns copies columns, aligned or not") {
  const test::Rank rank;
  struct Case {
    std::int64_t rows, width, first, count;
  };
  for (const DType dtype : test::kFloating) {
    for (const Case& c :
         {Case{1, 1, 0, 1}, Case{5, 48, 16, 32}, Case{3, 45, 7, 8}, Case{7, 45, 16, 24},
          Case{2, 5000, 8, 4992}, Case{4, 9, 3, 0}, Case{0, 9, 3, 2}}) {
      CAPTURE(name_of(dtype), c.rows, c.width, c.first, c.count);
      const Tensor x = normal_tensor({c.rows, c.width}, dtype, "x");
      const Tensor y = test::poisoned({c.rows, c.count}, dtype);
      copy_columns(y, {x, c.first, c.count});
      const auto from = to_doubles(x), to = to_doubles(y);
      bool equal = true;
      for (std::int64_t n = 0; n < c.rows; ++n) {
        for (std::int64_t i = 0; i < c.count; ++i) {
          equal &= to[static_cast<std::size_t>(n * c.count + i)] ==
                   from[static_cast<std::size_t>(n * c.width + c.first + i)];
        }
      }
      CHECK(equal);
    }
  }
}

TEST_CASE("set_columns sets columns, of the dtype or rounded from f32, and no others") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    for (const DType from : {dtype, DType::f32}) {
      CAPTURE(name_of(dtype), name_of(from));
      const Tensor before = normal_tensor({7, 45}, dtype, "before"), y = before.clone();
      const Tensor x = normal_tensor({7, 24}, from, "x"), rounded = Tensor::empty({7, 24}, dtype);
      cast(rounded, x);
      set_columns({y, 16, 24}, x);
      const auto set = to_doubles(y), old = to_doubles(before), expected = to_doubles(rounded);
      bool equal = true;
      for (std::size_t i = 0; i < set.size(); ++i) {
        const std::size_t n = i / 45, column = i % 45;
        const bool inside = 16 <= column && column < 40;
        equal &= set[i] == (inside ? expected[n * 24 + column - 16] : old[i]);
      }
      CHECK(equal);
    }
  }
  const Tensor y = Tensor::zeros({3, 8}, DType::bf16);
  REQUIRE_THROWS_WITH(set_columns({y, 5, 4}, Tensor::zeros({3, 4}, DType::bf16)),
                      Contains("columns [5, 9) of y"));
  REQUIRE_THROWS_WITH(set_columns({y, 0, 4}, Tensor::zeros({3, 4}, DType::f16)),
                      Contains("set_columns: "));
}

TEST_CASE("copy_columns: wrong arguments are named") {
  const test::Rank rank;
  const Tensor x = Tensor::zeros({3, 8}, DType::f32), y = Tensor::zeros({3, 4}, DType::f32);
  REQUIRE_THROWS_WITH(copy_columns(y, {x, 5, 4}), Contains("columns [5, 9)"));
  REQUIRE_THROWS_WITH(copy_columns(y, {x, 0, 5}), Contains("copy_columns: y"));
  REQUIRE_THROWS_WITH(copy_columns(x, {x, 0, 8}), Contains("copy_columns: y"));
}

}  // namespace tessera
