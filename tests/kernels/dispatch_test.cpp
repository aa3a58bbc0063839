#include "kernels/dispatch/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::to_doubles;

struct Sizes {
  std::int64_t tokens, k, experts, columns;
};
const std::vector<Sizes> kSizes = {{1, 1, 1, 1},    {5, 2, 4, 7},    {37, 3, 9, 24},
                                   {33, 8, 128, 8}, {3, 2, 5, 2056}, {700, 4, 6, 16},
                                   {0, 2, 3, 8},    {4, 2, 3, 0}};

struct Order {
  Tensor places, offsets, slots;
};
Order order_of(const Tensor& experts, std::int64_t count) {
  const Order order{Tensor::empty(experts.shape(), DType::i32),
                    Tensor::empty({count + 1}, DType::i32),
                    Tensor::empty({experts.numel()}, DType::i32)};
  dispatch_order(order.places, order.offsets, order.slots, experts);
  return order;
}

Tensor random_experts(const Sizes& n) {
  return test::index_tensor({n.tokens, n.k}, n.experts, "experts");
}

/// The slot of each dispatched row, by a stable sort.
std::vector<std::int32_t> slots_of(const std::vector<std::int32_t>& experts) {
  std::vector<std::int32_t> slots(experts.size());
  std::iota(slots.begin(), slots.end(), 0);
  std::stable_sort(slots.begin(), slots.end(),
                   [&](std::int32_t a, std::int32_t b) { return experts[a] < experts[b]; });
  return slots;
}

/// The dispatched row of each slot.
std::vector<std::int32_t> places_of(const std::vector<std::int32_t>& experts) {
  const std::vector<std::int32_t> slots = slots_of(experts);
  std::vector<std::int32_t> places(experts.size());
  for (std::size_t p = 0; p < slots.size(); ++p) {
    places[slots[p]] = static_cast<std::int32_t>(p);
  }
  return places;
}

std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& experts, std::int64_t count) {
  std::vector<std::int32_t> offsets;
  for (std::int32_t e = 0; e <= count; ++e) {
    offsets.push_back(static_cast<std::int32_t>(
        std::count_if(experts.begin(), experts.end(), [=](std::int32_t x) { return x < e; })));
  }
  return offsets;
}

double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-13 : 4e-6 + test::unit_roundoff(dtype);
}

/// The operands of one problem, and its results in f64.
struct Problem {
  Sizes n;
  Tensor x, rows, dy, weights;
  std::vector<std::int32_t> places;
  std::vector<double> dispatched, combined, dx, dweights;
  Tensor places_tensor;

  Problem(const Sizes& n, DType dtype, bool weighted) : n(n) {
    const std::int64_t P = n.tokens * n.k, C = n.columns;
    x = normal_tensor({n.tokens, C}, dtype, "x");
    rows = normal_tensor({P, C}, dtype, "rows");
    dy = normal_tensor({P, C}, dtype, "dy");
    weights = normal_tensor({n.tokens, n.k}, dtype, "weights");
    places = places_of(random_experts(n).to_vector<std::int32_t>());
    places_tensor = Tensor::from(places, {n.tokens, n.k});
    const auto X = to_doubles(x), R = to_doubles(rows), D = to_doubles(dy), W = to_doubles(weights);
    dispatched.resize(P * C), dx.resize(P * C);
    combined.resize(n.tokens * C), dweights.resize(P);
    for (std::int64_t slot = 0; slot < P; ++slot) {
      const std::int64_t p = places[slot], token = slot / n.k;
      const double w = weighted ? W[slot] : 1.0;
      for (std::int64_t c = 0; c < C; ++c) {
        dispatched[p * C + c] = w * X[token * C + c];
        combined[token * C + c] += w * R[p * C + c];
        dx[p * C + c] = W[slot] * D[p * C + c];
        dweights[slot] += D[p * C + c] * R[p * C + c];
      }
    }
  }
};

}  // namespace

TEST_CASE("dispatch_order sorts by expert and keeps the order of tokens, under every schedule") {
  for (const Sizes& n : kSizes) {
    CAPTURE(n.tokens, n.k, n.experts);
    test::for_every_schedule([&] {
      const Tensor experts = random_experts(n);
      const auto ids = experts.to_vector<std::int32_t>();
      const Order order = order_of(experts, n.experts);
      CHECK(order.places.to_vector<std::int32_t>() == places_of(ids));
      CHECK(order.offsets.to_vector<std::int32_t>() == offsets_of(ids, n.experts));
      CHECK(order.slots.to_vector<std::int32_t>() == slots_of(ids));
    });
  }
}

TEST_CASE("dispatch_order of skewed loads: experts without tokens, and one with all") {
  const test::Rank rank;
  for (const std::int32_t expert : {0, 3, 6}) {
    const Order order = order_of(Tensor::from(std::vector<std::int32_t>(20, expert), {10, 2}), 7);
    std::vector<std::int32_t> places(20);
    std::iota(places.begin(), places.end(), 0);
    CHECK(order.places.to_vector<std::int32_t>() == places);
    CHECK(order.offsets.to_vector<std::int32_t>() ==
          offsets_of(std::vector<std::int32_t>(20, expert), 7));
  }
}

TEST_CASE("dispatch and combine follow their formulas, with and without weights") {
  for (const DType dtype : test::kFloating) {
    for (const Sizes& n : kSizes) {
      for (const bool weighted : {false, true}) {
        CAPTURE(name_of(dtype), n.tokens, n.k, n.columns, weighted);
        test::for_every_schedule([&] {
          const Problem p(n, dtype, weighted);
          const Tensor weights = weighted ? p.weights : Tensor();
          const Tensor y = test::poisoned(p.rows.shape(), dtype);
          dispatch(y, p.x, p.places_tensor, weights);
          CHECK(test::worst_error(to_doubles(y), p.dispatched, 1e-3) <= tolerance(dtype));
          const Tensor off = test::unaligned(test::poisoned(p.rows.shape(), dtype));
          dispatch(off, test::unaligned(p.x), p.places_tensor, weights);
          CHECK(test::same_bits(off, y));
          const Tensor sum = test::poisoned(p.x.shape(), dtype);
          combine(sum, p.rows, p.places_tensor, weights);
          CHECK(test::worst_error(to_doubles(sum), p.combined, 1.0) <= tolerance(dtype));
          const Tensor sum_off = test::unaligned(test::poisoned(p.x.shape(), dtype));
          combine(sum_off, test::unaligned(p.rows), p.places_tensor, weights);
          CHECK(test::same_bits(sum_off, sum));

          auto with_residual = p.combined;
          const auto residual = to_doubles(p.x);
          for (std::size_t i = 0; i < residual.size(); ++i) with_residual[i] += residual[i];
          combine(sum, p.rows, p.places_tensor, weights, p.x);
          CHECK(test::worst_error(to_doubles(sum), with_residual, 1.0) <= tolerance(dtype));
          combine(sum_off, p.rows, p.places_tensor, weights, test::unaligned(p.x));
          CHECK(test::same_bits(sum_off, sum));
          combine(p.x, p.rows, p.places_tensor, weights, p.x);
          CHECK(test::same_bits(p.x, sum));
        });
      }
    }
  }
}

TEST_CASE("gradients of weighed rows follow their formulas, in place too") {
  for (const DType dtype : test::kFloating) {
    for (const Sizes& n : kSizes) {
      CAPTURE(name_of(dtype), n.tokens, n.k, n.columns);
      test::for_every_schedule([&] {
        const Problem p(n, dtype, true);
        const Tensor dx = test::poisoned(p.rows.shape(), dtype);
        const Tensor dw = test::poisoned(p.weights.shape(), dtype);
        weigh_backward(dx, dw, p.dy, p.rows, p.places_tensor, p.weights);
        CHECK(test::worst_error(to_doubles(dx), p.dx, 1e-3) <= tolerance(dtype));
        CHECK(test::worst_error(to_doubles(dw), p.dweights, 10.0) <= tolerance(dtype));
        const Tensor dw_again = test::poisoned(p.weights.shape(), dtype);
        weigh_backward(p.dy, dw_again, p.dy, p.rows, p.places_tensor, p.weights);
        CHECK(test::same_bits(p.dy, dx));
        CHECK(test::same_bits(dw_again, dw));
      });
    }
  }
}

TEST_CASE("combine adds a token's rows in the order of its slots") {
  // In f32, (1e8 + 1) - 1e8 = 0 and (1e8 - 1e8) + 1 = 1.
  const test::Rank rank;
  const Tensor x = Tensor::from(std::vector<float>{-1e8f, 1.0f, 1e8f}, {3, 1});
  const auto sum = [&](const std::vector<std::int32_t>& places) {
    const Tensor y = test::poisoned({1, 1}, DType::f32);
    combine(y, x, Tensor::from(places, {1, 3}));
    return to_doubles(y)[0];
  };
  CHECK(sum({2, 1, 0}) == 0.0);
  CHECK(sum({2, 0, 1}) == 1.0);
}

TEST_CASE("dispatch_order names an expert that does not exist") {
  const test::Rank rank;
  for (const std::int32_t wrong : {4, -1}) {
    const Tensor experts = Tensor::from(std::vector<std::int32_t>{0, 3, wrong, 1}, {2, 2});
    const auto call = [&] { order_of(experts, 4).places.to_vector<std::int32_t>(); };
    if (test::kOnGpu) {
      REQUIRE_THROWS_WITH(call(), Catch::Contains("expert at position 2 is not one of"));
    } else {
      REQUIRE_THROWS_WITH(call(), Catch::Contains("experts[2] is " + std::to_string(wrong)));
    }
  }
}

TEST_CASE("dispatch refuses arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f32); };
  const Tensor x = zeros({3, 4}), rows = zeros({6, 4}), w = zeros({3, 2});
  const Tensor places = Tensor::zeros({3, 2}, DType::i32);
  REQUIRE_THROWS_WITH(dispatch(zeros({5, 4}), x, places),
                      Contains("y is f32 [5, 4] and places is i32 [3, 2]; they must be [N k, C]"));
  REQUIRE_THROWS_WITH(dispatch(rows, zeros({3, 5}), places), Contains("x"));
  REQUIRE_THROWS_WITH(dispatch(rows, x, places, zeros({2, 3})), Contains("weights"));
  REQUIRE_THROWS_WITH(combine(zeros({2, 4}), rows, places), Contains("y"));
  REQUIRE_THROWS_WITH(combine(x, rows, places, w, zeros({4, 4})), Contains("residual"));
  REQUIRE_THROWS_WITH(combine(x, rows, Tensor::zeros({3, 2}, DType::i64)), Contains("places"));
  REQUIRE_THROWS_WITH(weigh_backward(rows, w, zeros({6, 4}), rows, places, zeros({3, 2})),
                      Contains("overlaps"));
  REQUIRE_THROWS_WITH(weigh_backward(rows, w, rows, zeros({6, 4}), places, w),
                      Contains("dweights overlaps weights"));
  REQUIRE_THROWS_WITH(dispatch_order(places, Tensor::zeros({0}, DType::i32), {}, places.clone()),
                      Contains("[E + 1]"));
  const Tensor offsets = Tensor::zeros({3}, DType::i32), few = Tensor::zeros({5}, DType::i32);
  REQUIRE_THROWS_WITH(dispatch_order(places, offsets, few, places.clone()),
                      Contains("slots is i32 [5]"));
}

}  // namespace tessera
