// The errors of approximate functions: none by default, and within the manual's bounds if switched on.
#include "runtime/emulation/device/arithmetic.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "kernels/cuda/numeric.h"
#include "kernels/cuda/tensor_core.h"
#include "tests/emulation/launch.h"

namespace tessera {
namespace {

using emulation::Arithmetic;

class ArithmeticGuard {
 public:
  explicit ArithmeticGuard(Arithmetic arithmetic) { emulation::set_arithmetic(arithmetic); }
  ~ArithmeticGuard() { emulation::set_arithmetic(Arithmetic::exact); }
  ArithmeticGuard(const ArithmeticGuard&) = delete;
  ArithmeticGuard& operator=(const ArithmeticGuard&) = delete;
};

/// The largest error of f on (0.01, 80) against the f64 function, in units of f32's last place.
template <typename F, typename Exact>
double error_in_ulps(F f, Exact exact) {
  double largest = 0;
  for (float x = 0.01f; x < 80.0f; x *= 1.0007f) {
    const double expected = exact(static_cast<double>(x));
    const double ulp = std::exp2(std::floor(std::log2(std::fabs(expected))) - 23);
    largest = std::max(largest, std::fabs(static_cast<double>(f(x)) - expected) / ulp);
  }
  return largest;
}

double exp2_error() {
  return error_in_ulps([](float x) { return gpu::fast_exp2(x); },
                       [](double x) { return std::exp2(x); });
}
double reciprocal_error() {
  return error_in_ulps([](float x) { return gpu::fast_reciprocal(x); },
                       [](double x) { return 1 / x; });
}
double root_error() {
  return error_in_ulps([](float x) { return rsqrtf(x); },
                       [](double x) { return 1 / std::sqrt(x); });
}
// A call from a namespace inside tessera, as in device code.
double exp_error() {
  return error_in_ulps([](float x) { return expf(x); }, [](double x) { return std::exp(x); });
}

template <typename T>
__global__ void multiply(float* c, const unsigned* a, const unsigned* b) {
  const unsigned t = threadIdx.x;
  const unsigned left[4] = {a[4 * t], a[4 * t + 1], a[4 * t + 2], a[4 * t + 3]};
  const unsigned right[2] = {b[2 * t], b[2 * t + 1]};
  float sums[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  gpu::multiply_accumulate<T>(sums, left, right);
  for (int i = 0; i < 4; ++i) c[4 * t + i] = sums[i];
}

/// 1 + 16 times the product of two numbers, by the tensor core.
float one_and_16_products(bfloat16 left, bfloat16 right) {
  const std::vector<unsigned> a(4 * 32, left.bits * 0x10001u), b(2 * 32, right.bits * 0x10001u);
  std::vector<float> c(4 * 32);
  test::launch(multiply<bfloat16>, dim3(1), dim3(32), 0, c.data(), a.data(), b.data());
  return c[0];
}

}  // namespace

TEST_CASE("by default approximate functions are exact to rounding") {
  REQUIRE(exp2_error() < 1.0);
  REQUIRE(reciprocal_error() <= 0.5);
  REQUIRE(root_error() < 1.5);  // two roundings
  REQUIRE(exp_error() < 1.0);
}

TEST_CASE("approximate functions are wrong by more than rounding, within the manual's bounds") {
  const ArithmeticGuard guard(Arithmetic::approximate);
  REQUIRE(exp2_error() > 1.5);
  REQUIRE(exp2_error() < 3.0);
  REQUIRE(reciprocal_error() > 0.9);
  REQUIRE(reciprocal_error() <= 1.5);
  REQUIRE(root_error() > 1.5);
  REQUIRE(root_error() < 3.5);
  REQUIRE(exp_error() > 1.5);
  REQUIRE(exp_error() < 3.0);
}

TEST_CASE("approximate functions are functions of their argument") {
  const ArithmeticGuard guard(Arithmetic::approximate);
  for (float x = 0.1f; x < 10.0f; x += 0.37f) REQUIRE(gpu::fast_exp2(x) == gpu::fast_exp2(x));
}

TEST_CASE("approximate functions are exact where the manuals give a value") {
  const ArithmeticGuard guard(Arithmetic::approximate);
  for (const float zero : {0.0f, -0.0f}) {
    REQUIRE(gpu::fast_exp2(zero) == 1.0f);
    REQUIRE(expf(zero) == 1.0f);
    REQUIRE(exp2f(zero) == 1.0f);
  }
  REQUIRE(logf(1.0f) == 0.0f);
  REQUIRE(gpu::fast_exp2(-INFINITY) == 0.0f);
  REQUIRE(gpu::fast_exp2(INFINITY) == INFINITY);
  REQUIRE(gpu::fast_reciprocal(INFINITY) == 0.0f);
  REQUIRE(std::isnan(gpu::fast_exp2(NAN)));
  REQUIRE(gpu::fast_exp2(-127.0f) == 0.0f);  // .ftz: below the normal numbers
}

// Each product is 3/4 of the distance from 1 to the next float. Rounded one by one, every product
// raises the sum to the next float. Eight at a time they add 6 distances, exactly; 16 add 12.
TEST_CASE("the approximate tensor core adds eight products at a time") {
  const bfloat16 left(0x1p-12f), right(0x1.8p-12f);
  REQUIRE(one_and_16_products(left, right) == 1.0f + 16 * 0x1p-23f);
  const ArithmeticGuard guard(Arithmetic::approximate);
  REQUIRE(one_and_16_products(left, right) == 1.0f + 12 * 0x1p-23f);
}

// Each product is 15/128 of the distance to the next float above 1, so eight are 15/16 of it. Above 1
// that is cut off. Below 1 floats are twice as dense, and every cut goes down by a whole distance.
TEST_CASE("the approximate tensor core truncates sums") {
  const ArithmeticGuard guard(Arithmetic::approximate);
  REQUIRE(one_and_16_products(bfloat16(0x1p-13f), bfloat16(0x1.ep-14f)) == 1.0f);
  REQUIRE(one_and_16_products(bfloat16(0x1p-13f), bfloat16(-0x1.ep-14f)) == 1.0f - 0x1p-22f);
}

}  // namespace tessera
