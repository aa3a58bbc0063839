#include "kernels/sgd/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::normal_tensor;
using test::relative_error;
using test::same_bits;
using test::to_doubles;
using Values = std::vector<double>;

struct Case {
  Tensor p, b, gradient;

  explicit Case(std::int64_t count, DType gradient_dtype = DType::f32)
      : p(normal_tensor({count}, DType::f32, "p")),
        b(normal_tensor({count}, DType::f32, "b")),
        gradient(normal_tensor({count}, gradient_dtype, "gradient")) {}
};

// PyTorch's documented algorithm (torch.optim.SGD), in double.
void reference_update(Values& p, Values& b, const Values& gradient, const SgdSettings& s) {
  for (std::size_t i = 0; i < p.size(); ++i) {
    double g = gradient[i] * s.gradient_scale + s.weight_decay * p[i];
    if (s.momentum != 0.0) {
      b[i] = s.first_step ? g : s.momentum * b[i] + g;
      g = s.nesterov ? g + s.momentum * b[i] : b[i];
    }
    p[i] -= s.learning_rate * g;
  }
}

std::vector<SgdSettings> all_kinds() {
  const SgdSettings plain = {.learning_rate = 0.1, .weight_decay = 0.01, .gradient_scale = 0.5};
  SgdSettings momentum = plain;
  momentum.momentum = 0.9;
  SgdSettings first = momentum;
  first.first_step = true;
  SgdSettings nesterov = momentum;
  nesterov.nesterov = true;
  SgdSettings first_nesterov = nesterov;
  first_nesterov.first_step = true;
  return {plain, momentum, first, nesterov, first_nesterov};
}

}  // namespace

TEST_CASE("sgd: p and b follow PyTorch's update, plain, with momentum and with nesterov") {
  const test::Rank rank;
  for (const SgdSettings& settings : all_kinds()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const std::int64_t count : {0, 1, 19, 70'001}) {
        const Case c(count, dtype);
        Values p = to_doubles(c.p), b = to_doubles(c.b);
        reference_update(p, b, to_doubles(c.gradient), settings);
        sgd(c.p, c.b, c.gradient, settings);
        REQUIRE(relative_error(to_doubles(c.p), p) <= 2e-7);
        REQUIRE(relative_error(to_doubles(c.b), b) <= 2e-7);
      }
    }
  }
}

TEST_CASE("sgd: the first step does not read b") {
  const test::Rank rank;
  const Case c(100);
  std::fill_n(c.b.data<float>(), 100, std::numeric_limits<float>::quiet_NaN());
  sgd(c.p, c.b, c.gradient, {.momentum = 0.9, .first_step = true});
  REQUIRE(same_bits(c.b, c.gradient));
}

TEST_CASE("sgd: without momentum b may be missing") {
  const test::Rank rank;
  const Tensor p = Tensor::from(std::vector<float>{1.0f, 2.0f}, {2});
  const Tensor gradient = Tensor::from(std::vector<float>{4.0f, -8.0f}, {2});
  sgd(p, Tensor(), gradient, {.learning_rate = 0.25});
  REQUIRE(to_doubles(p) == Values{0.0, 4.0});
}

TEST_CASE("sgd: a range gives the same bits whole or in pieces") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 5003;
  for (const SgdSettings& settings : all_kinds()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Case whole(kCount, dtype);
      sgd(whole.p, whole.b, whole.gradient, settings);
      for (const std::int64_t piece : {1, 3, 31, 1000}) {
        const Case pieces(kCount, dtype);
        for (std::int64_t begin = 0; begin < kCount; begin += piece) {
          const std::int64_t end = std::min(kCount, begin + piece);
          sgd(pieces.p.slice(begin, end), pieces.b.slice(begin, end),
              pieces.gradient.slice(begin, end), settings);
        }
        REQUIRE(same_bits(pieces.p, whole.p));
        REQUIRE(same_bits(pieces.b, whole.b));
      }
    }
  }
}

TEST_CASE("sgd: the same bits for any number of threads") {
  const test::Rank owner;
  const SgdSettings settings = {.momentum = 0.9, .nesterov = true, .weight_decay = 0.1};
  const Case expected(100'003);
  sgd(expected.p, expected.b, expected.gradient, settings);
  for (const int threads : {1, 2, 3}) {
    const test::Rank rank(threads);
    const Case c(100'003);
    sgd(c.p, c.b, c.gradient, settings);
    REQUIRE(same_bits(c.p, expected.p));
    REQUIRE(same_bits(c.b, expected.b));
  }
}

TEST_CASE("sgd: wrong arguments are named") {
  const test::Rank rank;
  const Case c(4);
  const SgdSettings momentum = {.momentum = 0.9};
  const Tensor five = Tensor::zeros({5}, DType::f32), f64 = Tensor::zeros({4}, DType::f64),
               bf16 = Tensor::zeros({4}, DType::bf16);
  REQUIRE_THROWS_WITH(sgd(c.p, c.b, five, {}),
                      Contains("sgd: p is f32 [4] and gradient is f32 [5]"));
  REQUIRE_THROWS_WITH(sgd(bf16, c.b, c.gradient, {}), Contains("p is bf16 [4]"));
  REQUIRE_THROWS_WITH(sgd(c.p, c.b, f64, {}), Contains("gradient is f64 [4]"));
  REQUIRE_THROWS_WITH(sgd(c.p, Tensor(), c.gradient, momentum), Contains("b is no tensor"));
  REQUIRE_THROWS_WITH(sgd(c.p, five, c.gradient, momentum), Contains("b is f32 [5]"));
  REQUIRE_THROWS_WITH(sgd(c.p, c.p, c.gradient, momentum), Contains("b overlaps p"));
}

}  // namespace tessera
