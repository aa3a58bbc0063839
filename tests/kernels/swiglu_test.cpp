#include "kernels/swiglu/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numbers>
#include <numeric>

#include "kernels/dispatch/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::to_doubles;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

/// The bound of the arithmetic's and the storage's errors, relative to the value plus a floor: the
/// derivative has a zero near -1.28, where only the absolute error is bounded.
double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-14 : 2e-6 + test::unit_roundoff(dtype);
}

struct Sizes {
  std::int64_t rows, columns;
};
const std::vector<Sizes> kSizes = {{1, 1}, {3, 7}, {5, 64}, {2, 2056}, {37, 24}, {0, 8}, {4, 0}};

/// The gate's values spread over 30 standard deviations, so that both ends of the sigmoid are
/// reached.
struct Inputs {
  Tensor gate_up, gate, up, dy;
};
Inputs inputs(const Sizes& n, DType dtype) {
  const auto gate = to_doubles(normal_tensor({n.rows, n.columns}, dtype, "gate", 8.0));
  const auto up = to_doubles(normal_tensor({n.rows, n.columns}, dtype, "up"));
  std::vector<double> packed;
  for (std::int64_t row = 0; row < n.rows; ++row) {
    for (const auto* half : {&gate, &up}) {
      const auto first = half->begin() + row * n.columns;
      packed.insert(packed.end(), first, first + n.columns);
    }
  }
  return {test::tensor_of(packed, {n.rows, 2 * n.columns}, dtype),
          test::tensor_of(gate, {n.rows, n.columns}, dtype),
          test::tensor_of(up, {n.rows, n.columns}, dtype),
          normal_tensor({n.rows, n.columns}, dtype, "dy")};
}

/// Columns of a tensor of `width`. All rows begin aligned, or no row, or only the first.
struct Place {
  std::int64_t width, first;
};
const std::vector<Place> kPlaces = {{40, 8}, {40, 3}, {45, 8}};

/// An activation's value and derivative, by the formulas of op.h.
struct Slope {
  double value, derivative;
};
Slope silu(double x) {
  return {x * sigmoid(x), sigmoid(x) * (1.0 + x * sigmoid(-x))};
}
/// By tanh(u) = 2 sigmoid(2u) - 1, because 1 + tanh(u) cancels.
Slope gelu(double x) {
  const double two_root = 2.0 * std::sqrt(2.0 / std::numbers::pi);
  const double two_u = two_root * (x + 0.044715 * x * x * x), s = sigmoid(two_u);
  return {x * s, s + x * s * sigmoid(-two_u) * two_root * (1.0 + 3 * 0.044715 * x * x)};
}

Tensor forward(const Columns& gate, const Columns& up, Gate activation = Gate::silu) {
  const Tensor y = test::poisoned({gate.tensor.size(0), gate.count}, gate.tensor.dtype());
  swiglu_forward(y, gate, up, activation);
  return y;
}

}  // namespace

TEST_CASE("swiglu follows its formula in every dtype and size, with silu and with gelu") {
  const test::Rank rank;
  const Gate activation = GENERATE(Gate::silu, Gate::gelu);
  for (const DType dtype : test::kFloating) {
    for (const Sizes& n : kSizes) {
      CAPTURE(name_of(dtype), n.rows, n.columns);
      const Inputs in = inputs(n, dtype);
      const auto gate = to_doubles(in.gate), up = to_doubles(in.up), dy = to_doubles(in.dy);
      std::vector<double> y, dgate, dup;
      for (std::size_t i = 0; i < gate.size(); ++i) {
        const auto [value, derivative] = activation == Gate::silu ? silu(gate[i]) : gelu(gate[i]);
        y.push_back(value * up[i]);
        dup.push_back(dy[i] * value);
        dgate.push_back(dy[i] * up[i] * derivative);
      }
      const auto g = all_columns(in.gate), u = all_columns(in.up);
      CHECK(test::worst_error(to_doubles(forward(g, u, activation)), y, 1e-2) <= tolerance(dtype));
      const Tensor dg = test::poisoned(in.gate.shape(), dtype);
      const Tensor du = test::poisoned(in.gate.shape(), dtype);
      swiglu_backward(all_columns(dg), all_columns(du), in.dy, g, u, activation);
      CHECK(test::worst_error(to_doubles(dg), dgate, 1.0) <= tolerance(dtype));
      CHECK(test::worst_error(to_doubles(du), dup, 1e-2) <= tolerance(dtype));
    }
  }
}

TEST_CASE("swiglu has the tabulated values of silu") {
  // silu(1) and silu(-2) with 16 digits; d silu / dx at 0 is 1/2.
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const double epsilon = tolerance(dtype);
    const Tensor gate = test::tensor_of({1.0, -2.0, 0.0}, {1, 3}, dtype);
    const Tensor up = test::tensor_of({2.0, 1.0, 4.0}, {1, 3}, dtype);
    const auto y = to_doubles(forward(all_columns(gate), all_columns(up)));
    CHECK(y[0] == Approx(2 * 0.7310585786300049).epsilon(epsilon));
    CHECK(y[1] == Approx(-0.2384058440442351).epsilon(epsilon));
    CHECK(y[2] == 0.0);
    const Tensor dy = test::tensor_of({1.0, 1.0, 1.0}, {1, 3}, dtype);
    swiglu_backward(all_columns(gate), all_columns(up), dy, all_columns(gate), all_columns(up));
    CHECK(to_doubles(gate)[2] == 2.0);
    CHECK(to_doubles(up)[2] == 0.0);
  }
}

TEST_CASE(
    "swiglu: packed, separate, unaligned and in-place calls give the same bits under every "
    "schedule") {
  for (const DType dtype : test::kFloating) {
    for (const Sizes& n : kSizes) {
      CAPTURE(name_of(dtype), n.rows, n.columns);
      test::for_every_schedule([&] {
        const Inputs in = inputs(n, dtype);
        const auto g = all_columns(in.gate), u = all_columns(in.up);
        const Tensor y = forward(g, u);
        CHECK(test::same_bits(forward(first_half(in.gate_up), second_half(in.gate_up)), y));
        const Tensor off = test::unaligned(in.gate_up);
        CHECK(test::same_bits(forward(first_half(off), second_half(off)), y));
        CHECK(test::same_bits(forward(g, second_half(off)), y));
        const Tensor elsewhere = test::unaligned(test::poisoned(y.shape(), dtype));
        swiglu_forward(elsewhere, g, u);
        CHECK(test::same_bits(elsewhere, y));

        const Tensor dpacked = test::poisoned(in.gate_up.shape(), dtype);
        swiglu_backward(first_half(dpacked), second_half(dpacked), in.dy, g, u);
        for (const Tensor& packed : {in.gate_up, off}) {
          swiglu_backward(first_half(packed), second_half(packed), in.dy, first_half(packed),
                          second_half(packed));
          CHECK(test::same_bits(packed, dpacked));
        }
        // dgate and dup stand side by side, so the two tensors' rows are the packed one's halves.
        swiglu_backward(g, u, test::unaligned(in.dy), g, u);
        const auto dg = to_doubles(in.gate), du = to_doubles(in.up), both = to_doubles(dpacked);
        int wrong = 0;
        for (std::int64_t row = 0; row < n.rows; ++row) {
          for (std::int64_t c = 0; c < n.columns; ++c) {
            wrong += both[row * 2 * n.columns + c] != dg[row * n.columns + c];
            wrong += both[(row * 2 + 1) * n.columns + c] != du[row * n.columns + c];
          }
        }
        CHECK(wrong == 0);
      });
    }
  }
}

TEST_CASE("swiglu reads and writes its columns only") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    for (const Place& place : kPlaces) {
      CAPTURE(name_of(dtype), place.width, place.first);
      const Tensor wide = test::poisoned({3, place.width}, dtype);
      const Tensor gate = normal_tensor({3, 16}, dtype, "gate"),
                   up = normal_tensor({3, 16}, dtype, "up");
      const Tensor dy = normal_tensor({3, 16}, dtype, "dy");
      const Tensor dup = test::poisoned({3, 16}, dtype), dgate = test::poisoned({3, 16}, dtype);
      swiglu_backward(all_columns(dgate), all_columns(dup), dy, all_columns(gate), all_columns(up));
      swiglu_backward({wide, place.first, 16}, all_columns(dup), dy, all_columns(gate),
                      all_columns(up));
      const auto values = to_doubles(wide), expected = to_doubles(dgate);
      int wrong = 0;
      for (std::int64_t i = 0; i < 3 * place.width; ++i) {
        const std::int64_t c = i % place.width - place.first;
        const bool inside = 0 <= c && c < 16;
        wrong += inside ? values[i] != expected[i / place.width * 16 + c] : !std::isnan(values[i]);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("swiglu of large values is the limit, not NaN") {
  // A GPU's reciprocal errs by one unit in the last place, also where the sigmoid is 1.
  const auto error = [](const Tensor& x, const std::vector<double>& limit) {
    return test::worst_error(to_doubles(x), limit, 1e-30);
  };
  constexpr double kBound = 1.5 * 0x1p-23;  // and the product is rounded
  const test::Rank rank;
  const Tensor gate = Tensor::from(std::vector<float>{200.0f, -200.0f, 1e30f, -1e30f}, {1, 4});
  const Tensor up = Tensor::from(std::vector<float>{2.0f, 2.0f, 2.0f, 2.0f}, {1, 4});
  const Tensor dy = Tensor::from(std::vector<float>{1.0f, 1.0f, 1.0f, 1.0f}, {1, 4});
  const Tensor y = forward(all_columns(gate), all_columns(up));
  CHECK(error(y, {400.0, 0.0, 2e30, 0.0}) <= kBound);
  swiglu_backward(all_columns(gate), all_columns(up), dy, all_columns(gate), all_columns(up));
  CHECK(error(gate, {2.0, 0.0, 2.0, 0.0}) <= kBound);
  CHECK(error(up, {200.0, 0.0, 1e30, 0.0}) <= kBound);
}

TEST_CASE(
    "weighed_swiglu_backward has the bits of its operations one after the other, in place too, "
    "under "
    "every schedule") {
  for (const DType dtype : test::kFloating) {
    for (const Sizes& n : kSizes) {
      for (const bool weighed : {false, true}) {
        CAPTURE(name_of(dtype), n.rows, n.columns, weighed);
        test::for_every_schedule([&] {
          const Inputs in = inputs(n, dtype);
          const auto g = all_columns(in.gate), u = all_columns(in.up);
          std::vector<std::int32_t> order(static_cast<std::size_t>(n.rows));
          std::iota(order.rbegin(), order.rend(), 0);
          if (n.rows > 3) std::swap(order[1], order[3]);
          const Tensor places = weighed ? Tensor::from(order, {n.rows, 1}) : Tensor();
          const Tensor weights = weighed ? normal_tensor({n.rows, 1}, dtype, "w") : Tensor();
          const auto new_sums = [&] {
            return weighed ? test::poisoned({n.rows, 1}, dtype) : Tensor();
          };

          Tensor y = forward(g, u), dh = in.dy;
          const Tensor dweights = new_sums();
          if (weighed) {
            dh = test::poisoned(y.shape(), dtype);
            weigh_backward(dh, dweights, in.dy, y, places, weights);
            weigh_backward(y, new_sums(), y, dh, places, weights);  // w y
          }
          const Tensor dg = test::poisoned(y.shape(), dtype), du = test::poisoned(y.shape(), dtype);
          swiglu_backward(all_columns(dg), all_columns(du), dh, g, u);

          const auto check = [&](const Tensor& again, const Tensor& sums, const Tensor& of_gate,
                                 const Tensor& of_up) {
            CHECK(test::same_bits(again, y));
            CHECK(test::same_bits(of_gate, dg));
            CHECK(test::same_bits(of_up, du));
            if (weighed) CHECK(test::same_bits(sums, dweights));
          };
          const Tensor again = test::poisoned(y.shape(), dtype), sums = new_sums();
          const Tensor of_gate = test::poisoned(y.shape(), dtype);
          Tensor of_up = test::poisoned(y.shape(), dtype);
          if (!weighed) of_up = test::unaligned(of_up);
          weighed_swiglu_backward(again, sums, all_columns(of_gate), all_columns(of_up), in.dy, g,
                                  u, places, weights);
          check(again, sums, of_gate, of_up);

          const Tensor packed = in.gate_up, over_dy = in.dy.clone(), last_sums = new_sums();
          weighed_swiglu_backward(over_dy, last_sums, first_half(packed), second_half(packed),
                                  over_dy, first_half(packed), second_half(packed), places,
                                  weights);
          const Tensor half = test::poisoned(y.shape(), dtype), other = half.clone();
          copy_columns(half, first_half(packed));
          copy_columns(other, second_half(packed));
          check(over_dy, last_sums, half, other);
        });
      }
    }
  }
}

TEST_CASE("weighed_swiglu_backward follows its formula") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    CAPTURE(name_of(dtype));
    const std::int64_t N = 5, k = 3, F = 40;
    const Inputs in = inputs({N * k, F}, dtype);
    const Tensor weights = normal_tensor({N, k}, dtype, "w");
    std::vector<std::int32_t> order(N * k);
    for (int slot = 0; slot < N * k; ++slot) order[static_cast<std::size_t>(slot)] = slot * 7 % 15;
    const auto gate = to_doubles(in.gate), up = to_doubles(in.up), dy = to_doubles(in.dy),
               w = to_doubles(weights);
    std::vector<double> y(gate.size()), dgate(y.size()), dup(y.size()), dweights(w.size());
    for (std::size_t slot = 0; slot < w.size(); ++slot) {
      for (std::int64_t f = 0; f < F; ++f) {
        const auto i = static_cast<std::size_t>(order[slot] * F + f);
        const double s = sigmoid(gate[i]), h = gate[i] * s * up[i], dh = w[slot] * dy[i];
        y[i] = w[slot] * h;
        dweights[slot] += dy[i] * h;
        dup[i] = dh * gate[i] * s;
        dgate[i] = dh * up[i] * s * (1.0 + gate[i] * sigmoid(-gate[i]));
      }
    }
    const Tensor sums = test::poisoned({N, k}, dtype);
    const auto g = all_columns(in.gate), u = all_columns(in.up);
    weighed_swiglu_backward(in.dy, sums, g, u, in.dy, g, u, Tensor::from(order, {N, k}), weights);
    const double bound = 3 * tolerance(dtype);  // h and dh are rounded besides
    CHECK(test::worst_error(to_doubles(in.dy), y, 1e-2) <= bound);
    CHECK(test::worst_error(to_doubles(in.gate), dgate, 1.0) <= bound);
    CHECK(test::worst_error(to_doubles(in.up), dup, 1e-2) <= bound);
    CHECK(test::worst_error(to_doubles(sums), dweights, 10.0) <= bound);
  }
}

TEST_CASE("weighed_swiglu_backward adds the weights' gradients in parts of the columns") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const std::int64_t N = 6, k = 2, F = 48;
    const Inputs in = inputs({N * k, F}, dtype);
    const Tensor weights = normal_tensor({N, k}, dtype, "w");
    std::vector<std::int32_t> order(N * k);
    for (int slot = 0; slot < N * k; ++slot) order[static_cast<std::size_t>(slot)] = slot * 5 % 12;
    const Tensor places = Tensor::from(order, {N, k});
    const auto dy = to_doubles(in.dy), gate = to_doubles(in.gate), up = to_doubles(in.up);
    const auto run = [&](const Tensor& sums) {
      const Tensor y = test::poisoned(in.dy.shape(), dtype),
                   dgate = test::poisoned(in.dy.shape(), dtype),
                   dup = test::poisoned(in.dy.shape(), dtype);
      weighed_swiglu_backward(y, sums, all_columns(dgate), all_columns(dup), in.dy,
                              all_columns(in.gate), all_columns(in.up), places, weights);
      return std::vector{y, dgate, dup};
    };
    const auto expected = run(test::poisoned({N, k}, dtype));
    for (const std::int64_t parts : {1, 2, 4, 16}) {  // on a GPU 16 have no whole vector
      CAPTURE(name_of(dtype), parts);
      const Tensor sums = test::poisoned({parts, N, k}, statistics_dtype(dtype));
      const auto found = run(sums);
      for (std::size_t i = 0; i < found.size(); ++i) CHECK(test::same_bits(found[i], expected[i]));
      std::vector<double> of_parts(static_cast<std::size_t>(parts * N * k), 0.0);
      for (std::int64_t slot = 0; slot < N * k; ++slot) {
        for (std::int64_t f = 0; f < F; ++f) {
          const auto i = static_cast<std::size_t>(order[static_cast<std::size_t>(slot)] * F + f);
          of_parts[f / (F / parts) * N * k + slot] += dy[i] * gate[i] * sigmoid(gate[i]) * up[i];
        }
      }
      CHECK(test::worst_error(to_doubles(sums), of_parts, 10.0) <= 2 * tolerance(dtype));
    }
  }
}

TEST_CASE("weighed_swiglu_backward refuses arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f32); };
  const Tensor packed = zeros({6, 8}), y = zeros({6, 4}), weights = zeros({3, 2});
  const Tensor places = Tensor::zeros({3, 2}, DType::i32);
  const auto call = [&](const Tensor& y, const Tensor& sums, const Tensor& places,
                        const Tensor& weights) {
    const auto g = first_half(packed), u = second_half(packed);
    weighed_swiglu_backward(y, sums, g, u, zeros({6, 4}), g, u, places, weights);
  };
  call(y, zeros({3, 2}), places, weights);
  call(y, zeros({2, 3, 2}), places, weights);
  REQUIRE_THROWS_WITH(call(y, zeros({3, 3, 2}), places, weights),
                      Contains("4 columns have no 3 equal parts"));
  REQUIRE_THROWS_WITH(call(zeros({6, 5}), zeros({3, 2}), places, weights),
                      Contains("y is f32 [6, 5]"));
  REQUIRE_THROWS_WITH(call(y, Tensor(), places, weights), Contains("define all of them or none"));
  REQUIRE_THROWS_WITH(call(y, Tensor(), Tensor(), weights), Contains("all of them or none"));
  REQUIRE_THROWS_WITH(call(y, zeros({2, 2}), Tensor::zeros({2, 2}, DType::i32), zeros({2, 2})),
                      Contains("[N k, F] and [N, k]"));
  REQUIRE_THROWS_WITH(call(y, zeros({3, 1}), places, weights), Contains("dweights"));
  REQUIRE_THROWS_WITH(call(y, weights, places, weights), Contains("dweights overlaps weights"));
}

TEST_CASE("swiglu refuses arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const Tensor packed = Tensor::zeros({3, 8}, DType::f32), y = Tensor::zeros({3, 4}, DType::f32);
  const auto g = first_half(packed), u = second_half(packed);
  REQUIRE_THROWS_WITH(
      swiglu_forward(Tensor::zeros({3, 5}, DType::f32), g, u),
      Contains("swiglu_forward: gate is 4 columns of a tensor f32 [3, 8] and y is f32 [3, 5]"));
  REQUIRE_THROWS_WITH(swiglu_forward(y, {packed, 6, 4}, u), Contains("gate is columns [6, 10)"));
  REQUIRE_THROWS_WITH(swiglu_forward(y, g, all_columns(Tensor::zeros({2, 4}, DType::f32))),
                      Contains("up"));
  REQUIRE_THROWS_WITH(swiglu_forward(y, all_columns(y), u), Contains("y overlaps gate"));
  REQUIRE_THROWS_WITH(swiglu_forward(Tensor::zeros({3, 4}, DType::bf16), g, u), Contains("dtypes"));
  REQUIRE_THROWS_WITH(swiglu_backward(g, {packed, 3, 4}, y, g, u),
                      Contains("dgate is columns [0, 4) and dup is columns [3, 7)"));
  REQUIRE_THROWS_WITH(swiglu_backward({packed, 1, 4}, all_columns(y.clone()), y, g, u),
                      Contains("dgate is columns [1, 5) and gate"));
  REQUIRE_THROWS_WITH(swiglu_backward(g, all_columns(y), y, g, u), Contains("dup overlaps dy"));
  REQUIRE_THROWS_WITH(first_half(Tensor::zeros({3, 5}, DType::f32)), Contains("[N, 2F]"));
}

}  // namespace tessera
