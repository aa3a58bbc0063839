#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "kernels/dispatch/op.h"
#include "kernels/grouped_matmul/gathered.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::normal_tensor;
using test::same_bits;

struct Sizes {
  std::int64_t tokens, k, experts, in, out;
};

/// The experts of each token, in ascending order. Expert 1 has none, if others suffice. Of two experts for one slot
/// expert 0 has every 19th token.
std::vector<std::int32_t> experts_of(const Sizes& n) {
  std::vector<std::int32_t> possible, all;
  for (std::int32_t e = 0; e < n.experts; ++e) {
    if (e != 1 || n.experts == 2 || n.experts == n.k) possible.push_back(e);
  }
  for (std::int64_t token = 0; token < n.tokens; ++token) {
    std::vector<std::int32_t> of_token;
    for (std::int64_t s = 0; s < n.k; ++s) {
      const std::int64_t first = possible.size() == 2 ? token % 19 > 0 : token * (token % 3 + 1);
      of_token.push_back(possible[static_cast<std::size_t>(first + s) % possible.size()]);
    }
    std::sort(of_token.begin(), of_token.end());
    all.insert(all.end(), of_token.begin(), of_token.end());
  }
  return all;
}

/// Tokens and their order, next to the same rows by expert.
struct Rows {
  Sizes n;
  DType dtype;
  Tensor places = Tensor::empty({n.tokens, n.k}, DType::i32);
  Tensor offsets = Tensor::empty({n.experts + 1}, DType::i32);
  Tensor slots = Tensor::empty({n.tokens * n.k}, DType::i32);

  Rows(const Sizes& n, DType dtype) : n(n), dtype(dtype) {
    dispatch_order(places, offsets, slots, Tensor::from(experts_of(n), {n.tokens, n.k}));
  }
  RoutedRows of(const Tensor& tokens) const { return {tokens, places, slots}; }
  Tensor by_expert(const Tensor& tokens) const {
    const Tensor rows = test::poisoned({n.tokens * n.k, tokens.size(1)}, dtype);
    dispatch(rows, tokens, places);
    return rows;
  }
  /// `count` rows of c by expert.
  Tensor empty(std::int64_t columns) const {
    return test::poisoned({n.tokens * n.k, columns}, dtype);
  }
};

/// The tokens' rows are gradients of the experts' results, of weighed rows of SwiGLU.
void check_gradients(const Rows& rows, const Tensor& tokens, const Tensor& by_expert,
                     const Tensor& weight, Transpose transpose) {
  const Sizes& n = rows.n;
  const Tensor gate_up = normal_tensor({n.tokens * n.k, 2 * n.out}, rows.dtype, "gate_up"),
               weights = normal_tensor({n.tokens, n.k}, rows.dtype, "weights");
  const auto gradients = [&](const RoutedRows& dy) {
    const Tensor h = rows.empty(n.out), dgate_up = rows.empty(2 * n.out),
                 dweights = test::poisoned({n.tokens, n.k}, rows.dtype);
    grouped_matmul_swiglu_backward(h, dweights, dgate_up, dy, weight, gate_up, rows.offsets,
                                   rows.places, rows.slots, weights, transpose);
    return std::vector{h, dgate_up, dweights};
  };
  const auto found = gradients(rows.of(tokens)), expected = gradients(Factor(by_expert));
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(same_bits(found[i], expected[i]));
}

/// The products of tokens and of rows by expert, in both layouts of the weight.
void check_rows(const Rows& rows, const Tensor& tokens) {
  const Sizes& n = rows.n;
  const Tensor by_expert = rows.by_expert(tokens);
  for (const Transpose transpose : {Transpose::no, Transpose::yes}) {
    CAPTURE(transpose == Transpose::yes);
    const Tensor weight = normal_tensor(
        transpose == Transpose::yes ? Shape{n.experts, n.out, n.in} : Shape{n.experts, n.in, n.out},
        rows.dtype, "weight");
    const Tensor c = rows.empty(n.out), expected = rows.empty(n.out);
    grouped_matmul(c, rows.of(tokens), weight, rows.offsets, transpose);
    grouped_matmul(expected, by_expert, weight, rows.offsets, transpose);
    CHECK(same_bits(c, expected));
    const Tensor gate_up = rows.empty(n.out), y = rows.empty(n.out / 2),
                 expected_y = rows.empty(n.out / 2);
    grouped_matmul_swiglu(y, gate_up, rows.of(tokens), weight, rows.offsets, transpose);
    grouped_matmul_swiglu(expected_y, expected, by_expert, weight, rows.offsets, transpose);
    CHECK(same_bits(gate_up, expected));
    CHECK(same_bits(y, expected_y));
    check_gradients(rows, tokens, by_expert, weight, transpose);
  }
}

/// The gradients of a weight: tokens are the rows of a, and then of b.
void check_weights(const Rows& rows, const Tensor& tokens) {
  const Sizes& n = rows.n;
  const Tensor by_expert = rows.by_expert(tokens);
  const Tensor dy = normal_tensor({n.tokens * n.k, n.out}, rows.dtype, "dy");
  for (const DType to : {rows.dtype, statistics_dtype(rows.dtype)}) {
    const Tensor of_a = test::poisoned({n.experts, n.in, n.out}, to), expected_a = of_a.clone();
    const Tensor of_b = test::poisoned({n.experts, n.out, n.in}, to), expected_b = of_b.clone();
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      CAPTURE(name_of(to), accumulate == Accumulate::yes);
      grouped_matmul_weight(of_a, rows.of(tokens), Factor(dy), rows.offsets, accumulate);
      grouped_matmul_weight(expected_a, by_expert, dy, rows.offsets, accumulate);
      CHECK(same_bits(of_a, expected_a));
      grouped_matmul_weight(of_b, Factor(dy), rows.of(tokens), rows.offsets, accumulate);
      grouped_matmul_weight(expected_b, dy, by_expert, rows.offsets, accumulate);
      CHECK(same_bits(of_b, expected_b));
    }
  }
}

void check_all(const Sizes& n, DType dtype) {
  CAPTURE(name_of(dtype), n.tokens, n.k, n.experts, n.in, n.out);
  const Rows rows(n, dtype);
  const Tensor tokens = normal_tensor({n.tokens, n.in}, dtype, "tokens");
  check_rows(rows, tokens);
  check_weights(rows, tokens);
}

}  // namespace

// On Hopper: narrow tiles and wide ones, tails of all extents, experts of one step and of several, more slots than
// lanes; and rows that no kernel gathers, because they are not aligned.
TEST_CASE("products of tokens have the bits of products of their dispatched rows") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    for (const Sizes& n :
         {Sizes{1, 1, 1, 8, 8}, Sizes{37, 1, 3, 24, 136}, Sizes{70, 2, 5, 72, 264},
          Sizes{33, 8, 9, 136, 40}, Sizes{5, 2, 4, 12, 18}, Sizes{0, 2, 3, 8, 8}}) {
      check_all(n, dtype);
    }
  }
}

TEST_CASE("products of tokens have the same bits in any order of threads and thread blocks") {
  for (const Sizes& n : {Sizes{37, 1, 3, 72, 136}, Sizes{3, 1, 70, 16, 32}}) {
    test::for_every_schedule([&] { check_all(n, DType::bf16); });
  }
}

// On Hopper, in clusters of two blocks: rows with and without a second tile of an expert below the first, and
// weights of an even number of tiles; more work than thread blocks; sums of many steps next to sums of one.
TEST_CASE("products of many tokens, and of wide weights, have the bits of their dispatched rows") {
  const test::Rank rank;
  for (const Sizes& n : {Sizes{1928, 1, 2, 72, 136}, Sizes{1000, 2, 2, 136, 48},
                         Sizes{90, 8, 64, 264, 72}, Sizes{5, 1, 2, 1024, 1000}}) {
    check_all(n, DType::bf16);
  }
}

TEST_CASE("NaNs of a token are in the products of its experts alone") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    test::for_every_schedule([&] {
      const Rows rows({70, 2, 5, 72, 136}, dtype);
      const Tensor tokens = normal_tensor({70, 72}, dtype, "tokens"), clean = tokens.clone();
      constexpr std::int64_t kToken = 36;
      tokens.slice(kToken, kToken + 1).copy_from(test::poisoned({1, 72}, dtype));
      const Tensor weight = normal_tensor({5, 72, 136}, dtype, "weight");
      const Tensor dy = normal_tensor({140, 136}, dtype, "dy");
      const auto product = [&](const Tensor& x) {
        const Tensor c = rows.empty(136);
        grouped_matmul(c, rows.of(x), weight, rows.offsets, Transpose::no);
        return c;
      };
      const auto gradient = [&](const Tensor& x, bool of_a) {
        const Tensor c = test::poisoned(of_a ? Shape{5, 72, 136} : Shape{5, 136, 72}, DType::f32);
        of_a ? grouped_matmul_weight(c, rows.of(x), Factor(dy), rows.offsets, Accumulate::no)
             : grouped_matmul_weight(c, Factor(dy), rows.of(x), rows.offsets, Accumulate::no);
        return c;
      };
      const auto experts = experts_of(rows.n);
      const auto places = rows.places.to_vector<std::int32_t>();
      const Tensor c = product(tokens), expected = product(clean);
      for (std::int64_t slot = 0; slot < 140; ++slot) {
        const std::int64_t row = places[static_cast<std::size_t>(slot)];
        const bool same = same_bits(c.slice(row, row + 1), expected.slice(row, row + 1));
        CHECK(same == (slot / 2 != kToken));
      }
      for (const bool of_a : {true, false}) {
        const Tensor dw = gradient(tokens, of_a), of_clean = gradient(clean, of_a);
        for (std::int32_t e = 0; e < 5; ++e) {
          const bool has_token = experts[2 * kToken] == e || experts[2 * kToken + 1] == e;
          CHECK(same_bits(dw.slice(e, e + 1), of_clean.slice(e, e + 1)) == !has_token);
        }
      }
    });
  }
}

// The copy engine reads whole tiles of the other operand. Behind an expert's rows it finds the next expert's.
TEST_CASE("NaNs of another expert's rows do not count next to the zeros behind gathered rows") {
  const test::Rank rank;
  const Rows rows({70, 2, 5, 72, 136}, DType::bf16);
  const Tensor tokens = normal_tensor({70, 72}, DType::bf16, "tokens");
  const Tensor dy = normal_tensor({140, 136}, DType::bf16, "dy");
  const auto offsets = rows.offsets.to_vector<std::int32_t>();
  dy.slice(offsets[3], offsets[4])
      .copy_from(test::poisoned({offsets[4] - offsets[3], 136}, DType::bf16));
  const Tensor of_a = test::poisoned({5, 72, 136}, DType::bf16);
  const Tensor of_b = test::poisoned({5, 136, 72}, DType::bf16);
  grouped_matmul_weight(of_a, rows.of(tokens), Factor(dy), rows.offsets, Accumulate::no);
  grouped_matmul_weight(of_b, Factor(dy), rows.of(tokens), rows.offsets, Accumulate::no);
  for (const Tensor& c : {of_a, of_b}) {
    for (std::int32_t e = 0; e < 5; ++e) {
      for (const double value : test::to_doubles(c.slice(e, e + 1))) {
        REQUIRE(std::isnan(value) == (e == 3));
      }
    }
  }
}

TEST_CASE("products of tokens refuse orders that are not of these tokens") {
  const test::Rank rank;
  const Rows rows({6, 2, 3, 16, 24}, DType::bf16);
  const Tensor tokens = normal_tensor({6, 16}, DType::bf16, "tokens"),
               weight = normal_tensor({3, 16, 24}, DType::bf16, "weight"),
               dy = normal_tensor({12, 24}, DType::bf16, "dy");
  const auto multiply = [&](const RoutedRows& a) {
    grouped_matmul(rows.empty(24), a, weight, rows.offsets, Transpose::no);
  };
  CHECK_THROWS_WITH(multiply({tokens.slice(0, 5), rows.places, rows.slots}),
                    Contains("a is bf16 [5, 16] and places is i32 [6, 2]; there must be places for "
                             "each of the tokens"));
  CHECK_THROWS_WITH(multiply({tokens, rows.slots, rows.slots}), Contains("places is i32 [12]"));
  CHECK_THROWS_WITH(multiply({tokens, rows.places, rows.slots.slice(0, 11)}),
                    Contains("slots is i32 [11]; its shape must be [12]"));
  CHECK_THROWS_WITH(multiply(Factor(tokens)), Contains("c is bf16 [12, 24]"));
  CHECK_THROWS_WITH(grouped_matmul_weight(Tensor::zeros({3, 16, 24}, DType::bf16), rows.of(tokens),
                                          Factor(dy.slice(0, 6)), rows.offsets, Accumulate::no),
                    Contains("their rows must be equal"));
  multiply({tokens, rows.places, {}});
}

}  // namespace tessera
