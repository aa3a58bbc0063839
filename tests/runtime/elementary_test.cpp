#include "runtime/elementary.h"

#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "runtime/error.h"
#include "runtime/random.h"

namespace tessera {
namespace {

using Function = double (*)(double);
// A long double has 64 bits on x86-64 and 113 on AArch64.
using Exact = long double (*)(long double);

constexpr int kSamples = 20000;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The distance from the exact value, in units of its last place as a double.
double error_in_ulp(double value, long double exact) {
  const int exponent = std::max(std::ilogb(static_cast<double>(exact)), -1022);
  return static_cast<double>(std::ldexp(std::fabs(value - exact), 52 - exponent));
}

/// Element i is uniform in [low, high), with all 53 bits.
double sample(double low, double high, int i) {
  static const RandomStream random(1, "arguments");
  const auto address = static_cast<std::uint64_t>(2 * i);
  const double fine = random.bits(address) + random.bits(address + 1) * 0x1p-32;
  return low + (high - low) * fine * 0x1p-32;
}

struct Errors {
  double largest = 0.0;  // in ulp
  int not_nearest = 0;
  int floats_not_nearest = 0;
};

Errors errors_between(double low, double high, Function f, Exact exact) {
  Errors errors;
  for (int i = 0; i < kSamples; ++i) {
    const double x = sample(low, high, i), value = f(x);
    const long double expected = exact(x);
    errors.largest = std::max(errors.largest, error_in_ulp(value, expected));
    errors.not_nearest += value != static_cast<double>(expected);
    errors.floats_not_nearest += static_cast<float>(value) != static_cast<float>(expected);
  }
  return errors;
}

void require_accurate(double low, double high, Function f, Exact exact, double ulp) {
  CAPTURE(low, high);
  const Errors errors = errors_between(low, high, f, exact);
  CHECK(errors.largest < ulp);
  CHECK(errors.not_nearest <= kSamples / 100);
  CHECK(errors.floats_not_nearest == 0);
}

const Exact kSine = [](long double x) { return std::sin(x); };
const Exact kCosine = [](long double x) { return std::cos(x); };
const Exact kExponential = [](long double x) { return std::exp(x); };
const Exact kLogarithm = [](long double x) { return std::log(x); };

}  // namespace

TEST_CASE("sine and cosine are within 0.58 ulp up to the largest angle") {
  for (const double largest : {0.01, 0.785, 6.3, 1e3, 1e6, kLargestAngle}) {
    require_accurate(-largest, largest, sine, kSine, 0.58);
    require_accurate(-largest, largest, cosine, kCosine, 0.58);
  }
}

TEST_CASE("sine and cosine keep their digits near their zeros") {
  for (int n = 1; n < 10'000'000; n = n * 3 / 2 + 1) {
    const double zero = n * (std::numbers::pi / 2);
    for (const double x : {std::nextafter(zero, 0.0), zero, std::nextafter(zero, kInfinity)}) {
      CAPTURE(n, x);
      CHECK(error_in_ulp(sine(x), kSine(x)) < 0.58);
      CHECK(error_in_ulp(cosine(x), kCosine(x)) < 0.58);
    }
  }
}

TEST_CASE("a sine beyond the largest angle is an error") {
  CHECK_NOTHROW(sine(kLargestAngle));
  for (const double x :
       {std::nextafter(kLargestAngle, kInfinity), -1e300, kInfinity, std::nan("")}) {
    CHECK_THROWS_AS(sine(x), Error);
    CHECK_THROWS_AS(cosine(x), Error);
  }
}

TEST_CASE("exponential of a double is within 0.53 ulp, and 1.1 where the result is subnormal") {
  for (const double largest : {0.01, 0.35, 1.0, 20.0, 708.0}) {
    require_accurate(-largest, largest, exponential, kExponential, 0.53);
  }
  for (int i = 0; i < kSamples; ++i) {
    const double x = sample(-745.0, -708.5, i);
    REQUIRE(error_in_ulp(exponential(x), kExponential(x)) < 1.1);
  }
}

TEST_CASE("exponential of a double is 0, infinity or NaN at the extremes") {
  CHECK(exponential(0.0) == 1.0);
  CHECK(exponential(709.78) < kInfinity);
  CHECK(exponential(709.79) == kInfinity);
  CHECK(exponential(kInfinity) == kInfinity);
  CHECK(exponential(-745.1) == std::numeric_limits<double>::denorm_min());
  CHECK(exponential(-745.2) == 0.0);
  CHECK(exponential(-kInfinity) == 0.0);
  CHECK(std::isnan(exponential(std::nan(""))));
}

TEST_CASE("logarithm is within 0.51 ulp, also near 1, and of subnormal numbers") {
  for (const double low : {1e-300, 1e-9, 0.1, 0.7, 0.99, 0.9999999, 1.0, 1.4, 2.0, 1e5, 1e300}) {
    require_accurate(low, low * 1.05, logarithm, kLogarithm, 0.51);
  }
  require_accurate(1e-320, 1e-308, logarithm, kLogarithm, 0.51);
}

TEST_CASE("logarithm of 0, of infinity, and of what has none") {
  CHECK(logarithm(1.0) == 0.0);
  CHECK(logarithm(0.0) == -kInfinity);
  CHECK(logarithm(-0.0) == -kInfinity);
  CHECK(logarithm(kInfinity) == kInfinity);
  CHECK(std::isnan(logarithm(-1.0)));
  CHECK(std::isnan(logarithm(std::nan(""))));
}

TEST_CASE("many functions at a time have the bits of one at a time") {
  std::vector<double> angles, sines(1001), cosines(1001), values, logs;
  for (int i = 0; i < 1001; ++i) {
    angles.push_back(sample(-kLargestAngle, kLargestAngle, i) / (i % 2 == 0 ? 1.0 : 1e6));
    values.push_back(std::exp(sample(-700.0, 700.0, i)));
  }
  logs = values;
  sines_and_cosines(angles, sines.data(), cosines.data());
  logarithms(logs);
  for (int i = 0; i < 1001; ++i) {
    CAPTURE(i, angles[i], values[i]);
    REQUIRE(sines[i] == sine(angles[i]));
    REQUIRE(cosines[i] == cosine(angles[i]));
    REQUIRE(logs[i] == logarithm(values[i]));
  }
  angles[1000] = std::nan("");
  CHECK_THROWS_AS(sines_and_cosines(angles, sines.data(), cosines.data()), Error);
}

TEST_CASE("power is within 0.53 ulp for moderate results and within 0.9 for all") {
  const auto worst = [](double low, double high, double exponent) {
    double largest = 0.0;
    for (int i = 0; i < kSamples / 4; ++i) {
      const double base = sample(low, high, i);
      const long double exact = std::pow(static_cast<long double>(base), exponent);
      largest = std::max(largest, error_in_ulp(power(base, exponent), exact));
    }
    return largest;
  };
  for (const double exponent : {1.0 / 64, 0.3, 0.5, 127.0 / 128, 1.0, -1.0}) {
    CAPTURE(exponent);
    CHECK(worst(2.0, 1e6, exponent) < 0.53);
  }
  for (const double steps : {1.0, 2.0, 17.0, 300.0}) {  // AdamW's beta^t
    CAPTURE(steps);
    CHECK(worst(0.95, 0.9999, steps) < 0.53);
  }
  CHECK(worst(500.0, 1000.0, 100.0) < 0.9);
  CHECK(worst(500.0, 1000.0, -100.0) < 0.9);
}

TEST_CASE("power is exact where the result is a double, and defined for 0") {
  for (int base = 2; base <= 10; ++base) {
    double product = 1.0;
    for (int exponent = 0; product < 0x1p53; ++exponent, product *= base) {
      CHECK(power(base, exponent) == product);
    }
  }
  CHECK(power(10000.0, 0.5) == 100.0);
  CHECK(power(0.0, 0.0) == 1.0);
  CHECK(power(0.0, 3.0) == 0.0);
  CHECK(power(0.0, -1.0) == kInfinity);
  CHECK(power(kInfinity, 2.0) == kInfinity);
  CHECK(power(kInfinity, -2.0) == 0.0);
  CHECK(std::isnan(power(-1.0, 2.0)));
}

// The nearest doubles, made with mpmath at 300 bits. Where sine and cosine are tiny, the arguments
// are the doubles closest to a multiple of pi / 2.
TEST_CASE("values are the nearest doubles, the same on every machine") {
  struct Value {
    Function f;
    double x, expected;
  };
  const Value values[] = {
      {sine, 0.5, 0x1.eaee8744b05f0p-2},
      {sine, 3.0, 0x1.210386db6d55bp-3},
      {sine, 0x1.6c6cbc45dc8dep6, -0x1.6d61b58c99c43p-60},
      {sine, 1e5, 0x1.24daa9c527e96p-5},
      {sine, -16777215.5, 0x1.f804285107093p-1},
      {cosine, 1.0, 0x1.14a280fb5068cp-1},
      {cosine, 0x1.6c6cbc45dc8dep5, -0x1.6d61b58c99c43p-61},
      {cosine, 0x1.b951f1572eba5p23, -0x1.f54f5227a4e84p-60},
      {cosine, 16777215.0, -0x1.4532c3721ed43p-2},
      {exponential, 1.0, 0x1.5bf0a8b145769p1},
      {exponential, -1.0, 0x1.78b56362cef38p-2},
      {exponential, 100.5, 0x1.fcc37a76f9e76p144},
      {exponential, -700.25, 0x1.af5fe9a485c8ep-1011},
      {exponential, 709.5, 0x1.81e9b4b52d0c9p1023},
      {logarithm, 2.0, 0x1.62e42fefa39efp-1},
      {logarithm, 0.99999994, -0x1.01b2b319b4240p-24},
      {logarithm, 1.0000001, 0x1.ad7f2847b6492p-24},
      {logarithm, 50257.0, 0x1.5a659f6bed8c8p3},
      {logarithm, 5e-324, -0x1.74385446d71c3p9},
  };
  for (const Value& value : values) {
    CAPTURE(value.x, value.expected);
    CHECK(value.f(value.x) == value.expected);
  }
  CHECK(power(10000.0, 0.015625) == 0x1.279fcaca404e6p0);
  CHECK(power(500000.0, 0.984375) == 0x1.8dc3277bc0b87p18);
  CHECK(power(0.999, 1000.0) == 0x1.788526411ed72p-2);
  CHECK(power(1e300, 1.02) == 0x1.6c8e5ca239078p1016);
}

TEST_CASE("rounded to float, the logarithm of a float is the nearest float") {
  // Every 10009th of the positive floats, subnormal ones included.
  for (std::uint32_t bits = 1; bits < 0x7f800000; bits += 10009) {
    const auto x = std::bit_cast<float>(bits);
    REQUIRE(static_cast<float>(logarithm(x)) == static_cast<float>(kLogarithm(x)));
  }
}

}  // namespace tessera
