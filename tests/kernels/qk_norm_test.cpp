#include "kernels/qk_norm/op.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <complex>
#include <utility>
#include <vector>

#include "kernels/rms_norm/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::normal_tensor;
using test::poisoned;
using test::relative_error;
using test::same_bits;
using test::to_doubles;

constexpr float kEpsilon = 1e-3f;  // large enough to show in every result
constexpr double kTheta = 10'000.0;
constexpr std::int64_t kPositions = 300;

struct Sizes {
  std::int64_t batch, tokens, heads, kv_heads, head_size;

  std::int64_t all() const { return heads + kv_heads; }
  std::int64_t rows() const { return batch * tokens; }
  /// Channels of a token in x: the values' heads are behind the keys'.
  std::int64_t packed() const { return (heads + 2 * kv_heads) * head_size; }
};

/// Inputs, and poisoned memory for the results.
struct Case {
  Sizes n;
  RopePairs pairs;
  Tensor x, weight, y, rstd, dx, dweight;
  RopePositions positions;
  float offset = 0.0f;

  Case(const Sizes& n, DType dtype, RopePairs pairs = RopePairs::half_split)
      : n(n),
        pairs(pairs),
        x(normal_tensor({n.batch, n.tokens, n.packed()}, dtype, "x", 2.0)),
        weight(normal_tensor({2 * n.head_size}, dtype, "weight")),
        y(poisoned({n.batch, n.tokens, n.all() * n.head_size}, dtype)),
        rstd(poisoned({n.batch, n.tokens, n.all()}, statistics_dtype(dtype))),
        dx(normal_tensor(x.shape(), dtype, "dx")),
        dweight(normal_tensor(weight.shape(), statistics_dtype(dtype), "dweight")) {}

  Rotary rotary() const {
    return {rope_table(kPositions, rope_frequencies(n.head_size, kTheta), pairs,
                       statistics_dtype(x.dtype())),
            positions};
  }
  void forward(const Rotary& by) const {
    qk_norm_forward(y, rstd, x, weight, by, n.heads, n.kv_heads, kEpsilon, offset);
  }
  void forward() const { forward(rotary()); }
  void backward(Accumulate accumulate) const { backward(accumulate, {}); }
  void backward(Accumulate accumulate, const HeadGroup& group) const {
    qk_norm_backward(dx, dweight, x, weight, rstd, n.heads, n.kv_heads, accumulate, group, offset);
  }
  /// Moves all tensors to addresses that 16-byte vectors cannot be read from.
  void misalign() {
    for (Tensor* tensor : {&x, &weight, &y, &dx}) *tensor = test::unaligned(*tensor);
  }
};

/// The formulas of op.h in double. A pair of channels is a complex number, multiplied by
/// e^(i p theta^(-2j / D)) (Su et al. 2021, equation 12).
struct Reference {
  std::vector<double> y, rstd, dx, dweight;

  explicit Reference(const Case& c)
      : y(c.n.rows() * c.n.all() * c.n.head_size), dx(to_doubles(c.dx)) {
    const std::int64_t D = c.n.head_size;
    dweight.resize(2 * D);
    const auto x = to_doubles(c.x), weight = to_doubles(c.weight);
    for (std::int64_t i = 0; i < c.n.rows() * c.n.all(); ++i) {
      const std::int64_t n = i / c.n.all(), h = i % c.n.all(), kind = h < c.n.heads ? 0 : D;
      const double* const head = x.data() + n * c.n.packed() + h * D;
      double squares = 0.0;
      for (std::int64_t d = 0; d < D; ++d) squares += head[d] * head[d];
      const double r = 1.0 / std::sqrt(squares / static_cast<double>(D) + double{kEpsilon});
      rstd.push_back(r);
      rotate(y.data() + i * D, head, weight.data() + kind, r, position_of(c, n), c);
      differentiate(dx.data() + n * c.n.packed() + h * D, dweight.data() + kind, head,
                    weight.data() + kind, r, D);
    }
  }

 private:
  static double position_of(const Case& c, std::int64_t n) {
    const Tensor& each = c.positions.each;
    const auto given = each.defined() ? each.to_vector<std::int32_t>() : std::vector<int>();
    return static_cast<double>(c.positions.first + (given.empty() ? n % c.n.tokens : given[n]));
  }
  static void rotate(double* y, const double* head, const double* weight, double r, double position,
                     const Case& c) {
    const std::int64_t half = c.n.head_size / 2;
    for (std::int64_t i = 0; i < half; ++i) {
      const bool split = c.pairs == RopePairs::half_split;
      const std::int64_t first = split ? i : 2 * i, second = split ? i + half : 2 * i + 1;
      const double angle =
          position * std::pow(kTheta, -static_cast<double>(i) / static_cast<double>(half));
      const auto z =
          std::complex<double>(head[first] * r * weight[first], head[second] * r * weight[second]) *
          std::polar(1.0, angle);
      y[first] = z.real(), y[second] = z.imag();
    }
  }
  static void differentiate(double* dx, double* dweight, const double* head, const double* weight,
                            double r, std::int64_t D) {
    double product = 0.0;
    for (std::int64_t d = 0; d < D; ++d) {
      product += dx[d] * weight[d] * head[d] * r;
      dweight[d] += dx[d] * head[d] * r;
    }
    for (std::int64_t d = 0; d < D; ++d) {
      dx[d] = r * (dx[d] * weight[d] - head[d] * r * product / static_cast<double>(D));
    }
  }
};

/// The heads of a group of x or dx, as rows that hold no others.
Tensor heads_of_group(const Tensor& packed, const Sizes& n, const HeadGroup& group) {
  const std::int64_t D = n.head_size, queries = n.heads / group.count,
                     keys = n.kv_heads / group.count, all = n.packed() / D;
  const Tensor from = packed.reshape({n.rows() * all, D});
  const Tensor to = Tensor::empty({n.rows() * (queries + keys), D}, packed.dtype());
  const auto copy = [&](std::int64_t to_row, std::int64_t from_row, std::int64_t count) {
    to.slice(to_row, to_row + count).copy_from(from.slice(from_row, from_row + count));
  };
  for (std::int64_t row = 0; row < n.rows(); ++row) {
    copy(row * (queries + keys), row * all + group.number * queries, queries);
    copy(row * (queries + keys) + queries, row * all + n.heads + group.number * keys, keys);
  }
  return to.reshape({n.batch, n.tokens, (queries + keys) * D});
}

/// The gradients of queries and keys; those of values come from attention.
std::vector<double> without_values(const std::vector<double>& rows, const Sizes& n) {
  std::vector<double> result;
  for (std::int64_t row = 0; row < n.rows(); ++row) {
    const auto begin = rows.begin() + row * n.packed();
    result.insert(result.end(), begin, begin + n.all() * n.head_size);
  }
  return result;
}

// One head each; odd numbers of heads and tokens; many heads, so that a token has several blocks;
// heads of an odd number of pairs; heads that no vector fits; one pair; the largest; several tokens to
// a block's chunk, the last one shorter; no tokens.
const std::vector<Sizes> kSizes = {
    {1, 1, 1, 1, 64}, {2, 5, 3, 1, 128}, {1, 7, 32, 4, 128}, {2, 3, 5, 5, 64}, {1, 37, 7, 1, 32},
    {2, 4, 3, 3, 6},  {1, 5, 4, 2, 20},  {3, 9, 2, 1, 16},   {1, 3, 2, 1, 2},  {1, 2, 3, 1, 256},
    {1, 3, 2, 2, 98}, {3, 187, 2, 1, 8}, {2, 0, 2, 1, 16}};

}  // namespace

TEST_CASE("qk_norm: every head is normalized, then rotated by its token's position") {
  const test::Rank rank;
  for (const auto& [dtype, bound] : test::kPrecisions) {
    for (const Sizes& n : kSizes) {
      for (const RopePairs pairs : {RopePairs::half_split, RopePairs::interleaved}) {
        CAPTURE(name_of(dtype), n.tokens, n.heads, n.kv_heads, n.head_size, int(pairs));
        Case c(n, dtype, pairs);
        c.positions.first = 11;
        c.forward();
        const Reference expected(c);
        CHECK(relative_error(to_doubles(c.y), expected.y) <= bound);
        CHECK(relative_error(to_doubles(c.rstd), expected.rstd) <=
              (dtype == DType::f64 ? 1e-13 : 2e-6));
      }
    }
  }
}

// The error of rounding to nearest is uniform in half a unit in the last place. Over a binade its root
// mean square is 0.38 u of the values', and that of two roundings 0.53 u.
TEST_CASE("qk_norm: in 16 bits a head is rounded once, after its rotation") {
  const test::Rank rank;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Case c({2, 20, 6, 2, 128}, dtype);
    c.positions.first = 11;
    c.forward();
    CAPTURE(name_of(dtype));
    CHECK(relative_error(to_doubles(c.y), Reference(c).y) <= 0.45 * test::unit_roundoff(dtype));
  }
}

TEST_CASE("qk_norm: gradients follow the formulas, and those of values stay as they are") {
  const test::Rank rank;
  for (const auto& [dtype, bound] : test::kPrecisions) {
    for (const Sizes& n : kSizes) {
      CAPTURE(name_of(dtype), n.tokens, n.heads, n.kv_heads, n.head_size);
      const Case c(n, dtype);
      c.forward();
      const Reference expected(c);
      c.dweight.copy_from(poisoned(c.dweight.shape(), c.dweight.dtype()));
      c.backward(Accumulate::no);
      const auto dx = to_doubles(c.dx);
      // With one pair, dx is a difference of nearly equal numbers.
      const bool cancels = n.head_size == 2 && dtype != DType::f64;
      CHECK(relative_error(without_values(dx, n), without_values(expected.dx, n)) <=
            bound + (cancels ? 1e-4 : 0.0));
      for (std::int64_t i = 0; i < c.dx.numel(); ++i) {
        if (i % n.packed() >= n.all() * n.head_size) REQUIRE(dx[i] == expected.dx[i]);
      }
      CHECK(relative_error(to_doubles(c.dweight), expected.dweight) <=
            (dtype == DType::f64 ? 1e-13 : 2e-6));
    }
  }
}

TEST_CASE(
    "qk_norm: gradients of weights are overwritten or accumulated, in f32 or as activations") {
  const test::Rank rank;
  for (const DType gradient : {DType::f32, DType::bf16}) {
    Case c({2, 20, 3, 2, 24}, DType::bf16);
    c.dweight = normal_tensor(c.weight.shape(), gradient, "dweight");
    c.forward();
    const Reference expected(c);
    auto sum = to_doubles(c.dweight);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += expected.dweight[i];
    c.backward(Accumulate::yes);
    CHECK(relative_error(to_doubles(c.dweight), sum) <= (gradient == DType::f32 ? 2e-6 : 0x1p-8));
  }
}

TEST_CASE("qk_norm: no tokens give zero gradients of weights") {
  const test::Rank rank;
  const Case c({1, 0, 2, 1, 8}, DType::f32);
  c.forward();
  c.backward(Accumulate::yes);
  CHECK(same_bits(c.dweight, normal_tensor({16}, DType::f32, "dweight")));
  c.backward(Accumulate::no);
  CHECK(to_doubles(c.dweight) == std::vector<double>(16, 0.0));
}

TEST_CASE("qk_norm: a group of heads has the bits of a call on these heads alone") {
  struct Cut {
    Sizes sizes;
    std::int64_t groups;
  };
  test::for_every_schedule([] {
    for (const DType dtype : test::kFloating) {
      for (const auto& [n, groups] : {Cut{{2, 9, 4, 2, 64}, 2}, Cut{{1, 37, 8, 4, 32}, 4},
                                      Cut{{3, 70, 6, 3, 98}, 3}, Cut{{2, 5, 3, 1, 16}, 1}}) {
        CAPTURE(name_of(dtype), n.heads, groups);
        const Case whole(n, dtype), grouped(n, dtype);
        whole.forward();
        grouped.forward();
        const Reference expected(whole);
        whole.backward(Accumulate::no);
        for (HeadGroup group = {.count = groups}; group.number < groups; ++group.number) {
          const Accumulate accumulate = group.number == 0 ? Accumulate::no : Accumulate::yes;
          Case alone({n.batch, n.tokens, n.heads / groups, n.kv_heads / groups, n.head_size},
                     dtype);
          alone.x = heads_of_group(grouped.x, n, group);
          alone.dx = heads_of_group(grouped.dx, n, group);
          alone.dweight = grouped.dweight.clone();
          alone.forward();
          alone.backward(accumulate);
          grouped.backward(accumulate, group);
          CHECK(same_bits(grouped.dweight, alone.dweight));
          CHECK(same_bits(heads_of_group(grouped.dx, n, group), alone.dx));
        }
        CHECK(same_bits(grouped.dx, whole.dx));  // the gradients of values, too
        CHECK(relative_error(to_doubles(grouped.dweight), expected.dweight) <=
              (dtype == DType::f64 ? 1e-13 : 2e-6));
      }
    }
  });
}

TEST_CASE("qk_norm: an undefined gradient of the weights changes no bit of dx") {
  const test::Rank rank;
  const Case all({2, 9, 3, 1, 64}, DType::bf16);
  Case none({2, 9, 3, 1, 64}, DType::bf16);
  none.dweight = {};
  for (const Case* c : {&all, &std::as_const(none)}) {
    c->forward();
    c->backward(Accumulate::no);
  }
  CHECK(same_bits(none.dx, all.dx));
}

TEST_CASE("qk_norm: in place it writes the same bits, and leaves the values") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const Sizes n{2, 5, 4, 2, 32};
    Case apart(n, dtype), in_place(n, dtype);
    const Tensor before = in_place.x.clone();
    in_place.y = in_place.x;
    apart.forward();
    in_place.forward();
    const auto x = to_doubles(in_place.x), old = to_doubles(before), y = to_doubles(apart.y);
    const std::int64_t width = n.all() * n.head_size;
    for (std::int64_t i = 0; i < in_place.x.numel(); ++i) {
      const std::int64_t row = i / n.packed(), channel = i % n.packed();
      REQUIRE(x[i] == (channel < width ? y[row * width + channel] : old[i]));
    }
    CHECK(same_bits(in_place.rstd, apart.rstd));
  }
}

// Rounding happens once, at the end, so 16 bits have no more error than one rounding. f32 is the
// same either way: there the parts' bits are those of the whole on the CPU.
TEST_CASE("qk_norm adds its offset to the weights") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    CAPTURE(name_of(dtype));
    Case with({1, 5, 4, 2, 8}, dtype), without({1, 5, 4, 2, 8}, dtype);
    // 1 + weight is exact in 16 bits, too.
    std::vector<double> weight, sum;
    for (int i = 0; i < 16; ++i) {
      weight.push_back((i - 7) / 64.0);
      sum.push_back(1.0 + weight.back());
    }
    with.weight = test::tensor_of(weight, {16}, dtype);
    without.weight = test::tensor_of(sum, {16}, dtype);
    with.offset = 1.0f;
    for (const Case* c : {&with, &without}) {
      c->forward();
      c->backward(Accumulate::no);
    }
    CHECK(same_bits(with.y, without.y));
    CHECK(same_bits(with.dx, without.dx));
    CHECK(same_bits(with.dweight, without.dweight));
  }
}

TEST_CASE("qk_norm in f32 on the CPU has the bits of rms_norm for each kind, and rope", "[cpu]") {
  const test::Rank rank;
  const Sizes n{2, 40, 3, 2, 48};
  const Case c(n, DType::f32);
  c.forward();
  const Tensor dx = c.dx.clone();
  c.backward(Accumulate::no);
  std::int64_t first = 0;
  for (const std::int64_t heads : {n.heads, n.kv_heads}) {
    const auto rows_of = [&](const Tensor& packed) {
      std::vector<float> rows;
      const auto all = packed.to_vector<float>();
      for (std::int64_t row = 0; row < n.rows(); ++row) {
        const auto begin = all.begin() + row * packed.size(2) + first * n.head_size;
        rows.insert(rows.end(), begin, begin + heads * n.head_size);
      }
      return Tensor::from(rows, {n.batch, n.tokens, heads, n.head_size});
    };
    const std::int64_t kind = first == 0 ? 0 : n.head_size;
    const Tensor x = rows_of(c.x), weight = c.weight.slice(kind, kind + n.head_size);
    const Tensor y = poisoned(x.shape(), DType::f32), dy = rows_of(dx),
                 dxs = poisoned(x.shape(), DType::f32),
                 dweight = poisoned({n.head_size}, DType::f32),
                 rstd = poisoned({n.rows() * heads}, DType::f32);
    rms_norm_forward(y, rstd, x, weight, kEpsilon);
    rms_norm_backward(dxs, dweight, dy, x, weight, rstd, Accumulate::no);
    rope_forward(
        heads_of(y.reshape({n.batch, n.tokens, heads * n.head_size}), 0, heads, n.head_size),
        c.rotary().table);
    CHECK(same_bits(rows_of(c.y), y));
    CHECK(same_bits(rows_of(c.dx), dxs));
    CHECK(same_bits(c.dweight.slice(kind, kind + n.head_size), dweight));
    first += heads;
  }
}

TEST_CASE("qk_norm: positions that are given, as in packed documents, under every schedule") {
  test::for_every_schedule([] {
    for (const std::int64_t first : {0, 2}) {
      Case c({2, 5, 3, 1, 16}, DType::f32);
      const std::vector<std::int32_t> each = {0, 1, 2, 0, 1, 4, 4, 0, 9, 3};
      c.positions = {first, Tensor::from(each, {2, 5})};
      c.forward();
      CHECK(relative_error(to_doubles(c.y), Reference(c).y) <= 2e-6);
    }
  });
}

TEST_CASE("qk_norm: the same bits under every schedule, and wherever tensors lie") {
  const test::Rank owner;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    // Two blocks for a token, and several rounds of teams; several tokens to a chunk; small heads.
    for (const Sizes& n :
         {Sizes{1, 40, 40, 3, 128}, Sizes{3, 187, 2, 1, 8}, Sizes{2, 9, 3, 2, 64}}) {
      const auto results = test::under_every_schedule([&] {
        Case c(n, dtype), moved(n, dtype);
        moved.misalign();
        for (const Case* one : {&std::as_const(c), &std::as_const(moved)}) {
          one->forward();
          one->backward(Accumulate::yes);
        }
        CHECK(same_bits(c.y, moved.y));
        CHECK(same_bits(c.dx, moved.dx));
        CHECK(same_bits(c.rstd, moved.rstd));
        CHECK(same_bits(c.dweight, moved.dweight));
        return c;
      });
      for (const Case& c : results) {
        CHECK(same_bits(c.y, results[0].y));
        CHECK(same_bits(c.dx, results[0].dx));
        CHECK(same_bits(c.dweight, results[0].dweight));
      }
    }
  }
}

TEST_CASE("qk_norm: a token alone, as in decoding, gets the same bits as in a sequence") {
  const test::Rank rank;
  const Sizes n{1, 30, 4, 2, 32};
  const Case all(n, DType::bf16);
  all.forward();
  for (const std::int64_t t : {0, 11, 29}) {
    Case one({1, 1, 4, 2, 32}, DType::bf16);
    one.x = all.x.reshape({30, n.packed()}).slice(t, t + 1).clone().reshape({1, 1, n.packed()});
    one.positions.first = t;
    one.forward();
    const std::int64_t width = n.all() * n.head_size;
    CHECK(test::bytes_of(one.y) == test::bytes_of(all.y.reshape({30, width}).slice(t, t + 1)));
  }
}

// On a GPU the position is reported when the host synchronizes.
TEST_CASE("qk_norm: a position outside the table is an error that names its token") {
  const test::Rank rank;
  Case c({1, 3, 2, 1, 8}, DType::f32);
  c.positions.each = Tensor::from(std::vector<std::int32_t>{0, kPositions, 1}, {1, 3});
  const auto run = [&] {
    c.forward();
    context().compute_stream().synchronize();
  };
  REQUIRE_THROWS_WITH(
      run(),
      Contains(test::device().is_cpu() ? "qk_norm_forward: token 1 has position 300"
                                       : "qk_norm_forward: the token at position 1 of the batch"));
  c.positions = {.first = kPositions - 2};
  REQUIRE_THROWS_WITH(c.forward(), Contains("3 tokens from position 298 on are too many"));
}

TEST_CASE("qk_norm: wrong arguments are named") {
  const test::Rank rank;
  const Case c({2, 3, 4, 2, 8}, DType::bf16);
  const Rotary rotary = c.rotary();
  const Tensor narrow = Tensor::zeros({2, 3, 40}, DType::bf16);
  const Tensor memory = Tensor::zeros({2 * 3 * 64 + 8}, DType::bf16);
  const auto slice = [&](std::int64_t first) {
    return memory.slice(first, first + 384).reshape({2, 3, 64});
  };
  const auto forward = [&](Out y, Out rstd, const Tensor& x, const Tensor& weight,
                           std::int64_t heads) {
    qk_norm_forward(y, rstd, x, weight, rotary, heads, 2, kEpsilon);
  };
  REQUIRE_THROWS_WITH(forward(narrow, c.rstd, c.x, c.weight, 4),
                      Contains("qk_norm_forward: y is bf16 [2, 3, 40]; its rows must hold 4 + 2 "
                               "heads of 8 channels"));
  REQUIRE_THROWS_WITH(forward(c.y, c.rstd, narrow, c.weight, 4), Contains("x is bf16 [2, 3, 40]"));
  REQUIRE_THROWS_WITH(forward(c.y, c.rstd, c.x, c.weight, 0), Contains("0 heads of queries"));
  REQUIRE_THROWS_WITH(forward(c.y, c.rstd, c.x, c.weight.slice(0, 15), 4),
                      Contains("weight is bf16 [15]; its shape must be [14]"));
  REQUIRE_THROWS_WITH(forward(c.y, c.rstd, c.x, c.weight, 3),
                      Contains("rstd is f32 [2, 3, 6]; its shape must be [2, 3, 5]"));
  REQUIRE_THROWS_WITH(forward(Tensor::zeros(c.y.shape(), DType::f32), c.rstd, c.x, c.weight, 4),
                      Contains("dtypes must be equal"));
  REQUIRE_THROWS_WITH(forward(slice(0), c.rstd, slice(8), c.weight, 4),
                      Contains("y overlaps x in part"));
  REQUIRE_THROWS_WITH(qk_norm_forward(c.y, c.rstd, c.x, c.weight, {}, 4, 2, kEpsilon),
                      Contains("qk_norm_forward: cosine is an undefined tensor"));
  const auto backward = [&](Out dx, Out dweight) {
    qk_norm_backward(dx, dweight, c.x, c.weight, c.rstd, 4, 2, Accumulate::no);
  };
  REQUIRE_THROWS_WITH(backward(c.x, c.dweight), Contains("qk_norm_backward: dx overlaps x"));
  REQUIRE_THROWS_WITH(backward(c.dx, c.dweight.slice(0, 8)), Contains("dweight is f32 [8]"));
  // Groups that divide the heads of queries only, or of neither; none; and those that do not exist.
  for (const auto& [number, count] :
       std::vector<std::pair<int, int>>{{0, 4}, {1, 3}, {0, 0}, {0, -1}, {2, 2}, {-1, 2}}) {
    REQUIRE_THROWS_WITH(c.backward(Accumulate::no, {.number = number, .count = count}),
                        Contains(fmt::format("qk_norm_backward: group {} of {} of 4 heads of "
                                             "queries and 2 of keys",
                                             number, count)));
  }
}

}  // namespace tessera
