#include "sharding/strategy/gradient_norm.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

using test::normal_tensor;

namespace {

double norm_of(const std::vector<Tensor>& gradients) {
  return gradient_norm(gradients).value();
}

}  // namespace

TEST_CASE("gradient_norm: agrees with a long double sum") {
  const test::Rank rank;
  for (const double scale : {1e-20, 1e-3, 1.0, 1e15}) {
    const Tensor a = normal_tensor({1000, 37}, DType::f32, "a", scale);
    const Tensor b = normal_tensor({13}, DType::f32, "b", scale);
    long double sum = 0.0L;
    for (const Tensor* t : {&a, &b}) {
      for (const float x : t->to_vector<float>()) sum += static_cast<long double>(x) * x;
    }
    CHECK(norm_of({a, b}) == Approx(static_cast<double>(std::sqrt(sum))).epsilon(1e-12));
  }
}

TEST_CASE("gradient_norm: the same bits for every partition of the elements") {
  const test::Rank rank;
  const Tensor whole = normal_tensor({1 << 15}, DType::f32, "gradient", 0.01);
  const double norm = norm_of({whole});
  for (const std::int64_t cut : {1, 7, 4096, 20000, (1 << 15) - 1}) {
    CHECK(norm_of({whole.slice(cut, whole.numel()), whole.slice(0, cut)}) == norm);
  }
  CHECK(norm_of({whole.slice(0, 0), whole}) == norm);
}

TEST_CASE("gradient_norm: zero, infinite and not-a-number gradients") {
  const test::Rank rank;
  CHECK(norm_of({}) == 0.0);
  CHECK(norm_of({Tensor::zeros({5}, DType::f32)}) == 0.0);
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(norm_of({Tensor::from(std::vector<float>{1.0f, -infinity}, {2})}) == infinity);
  CHECK(std::isnan(norm_of({Tensor::from(std::vector<float>{1.0f, std::nanf("")}, {2})})));
  const float largest = std::numeric_limits<float>::max();
  CHECK(norm_of({Tensor::from(std::vector<float>{largest, largest}, {2})}) ==
        Approx(std::sqrt(2.0) * static_cast<double>(largest)));
  const float smallest = std::numeric_limits<float>::denorm_min();
  CHECK(norm_of({Tensor::from(std::vector<float>{smallest}, {1})}) ==
        static_cast<double>(smallest));
}

}  // namespace tessera
