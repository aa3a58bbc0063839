// How a function gets close to half an ulp without a longer type: its first terms are exact, and the
// rest is so small that its rounding errors do not count.
//
// Take sin(r) = r - r^3 / 6 + ... A double has 53 bits. Let a be the first 14 bits of r. Then a and
// a^3 / 6, with the first 11 bits of 1 / 6, are doubles without an error. The rest is less than a
// hundredth of r, and is computed in double. A sum of two doubles keeps its rounding error as a
// second double, which is added to the rest. Terms beyond the first three are a polynomial; its
// coefficients are made and its error is bounded by tools/polynomials.py.
//
// The cores have no branch and are always inlined: a loop over them becomes one of vectors, with the
// bits of single calls.
//
// References: J.-M. Muller, "Elementary Functions", chapters 3, 4 and 11: polynomials that interpolate
// a function at the Chebyshev points, reduction of arguments; W. J. Cody and W. Waite, "Software
// Manual for the Elementary Functions", 1980: constants in parts; T. J. Dekker, "A floating-point
// technique for extending the available precision", 1971: sums with their errors.
#include "runtime/elementary.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "runtime/check.h"

#define TESSERA_CORE [[gnu::always_inline]] inline

namespace tessera {
namespace {

/// high + low, where low is at most half a unit in the last place of high.
struct TwoDoubles {
  double high, low;
};

/// a + b, exactly. |a| >= |b|, or a is 0.
TwoDoubles ordered_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

/// a + b, exactly.
TwoDoubles exact_sum(double a, double b) {
  const double sum = a + b, added = sum - a;
  return {sum, (a - (sum - added)) + (b - added)};
}

/// The first kBits binary digits of x.
template <int kBits>
double leading(double x) {
  constexpr std::uint64_t kMask = ~std::uint64_t{0} << (53 - kBits);
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & kMask);
}

/// x + kWhole is rounded to a whole number for |x| < 2^51: a double of this size has no fraction. The sum
/// ends with the bits of that number.
constexpr double kWhole = 0x1.8p52;

/// The nearest whole number, for |x| < 2^51.
double nearest_whole(double x) {
  return (x + kWhole) - kWhole;
}

template <std::size_t kTerms>
TESSERA_CORE double polynomial(const std::array<double, kTerms>& coefficients, double x) {
  double sum = coefficients[kTerms - 1];
  for (std::size_t i = kTerms - 1; i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

// The first parts have 42 bits, so that their products with an exponent of a double are exact.
constexpr double kLn2High = 0x1.62e42fefa3800p-1, kLn2Low = 0x1.ef35793c76730p-45;

// ---- e^x = 2^n e^r with r = x - n ln(2), |r| <= ln(2) / 2 ----

constexpr std::array kExponentialTail = {  // e^r = 1 + r + r^2 / 2 + r^3 P(r)
    0x1.5555555555556p-3,  0x1.5555555555555p-5,  0x1.11111111109a2p-7,  0x1.6c16c16c167d8p-10,
    0x1.a01a01a7d176dp-13, 0x1.a01a01a482a5bp-16, 0x1.71de0d7a972efp-19, 0x1.27e4e1d6ed7e8p-22,
    0x1.af3924be99a57p-26, 0x1.1f6725cc8f974p-29};

/// x 2^n for n in [-1080, 1024], in two steps: 2^n itself may be no double.
double scaled(double x, int n) {
  const auto power_of_two = [](int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  };
  return x * power_of_two(n / 2) * power_of_two(n - n / 2);
}

/// e^(x.high + x.low). x.low may be up to 2^-20 of x.high.
double exponential_of(const TwoDoubles& x) {
  if (!(x.high < 710.0)) return x.high * std::numeric_limits<double>::infinity();  // or NaN
  if (x.high < -746.0) return 0.0;
  constexpr double kPerLn2 = 0x1.71547652b82fep0;
  const double n = nearest_whole(x.high * kPerLn2);
  const TwoDoubles r = exact_sum(x.high - n * kLn2High, x.low - n * kLn2Low);
  const double a = leading<26>(r.high);
  const double cube = r.high * r.high * r.high;
  const double rest = 0.5 * (r.high - a) * (r.high + a) + (r.low + r.low * r.high) +
                      cube * polynomial(kExponentialTail, r.high);
  const TwoDoubles linear = ordered_sum(1.0, r.high);
  const TwoDoubles square = ordered_sum(linear.high, 0.5 * a * a);
  return scaled(square.high + (linear.low + square.low + rest), static_cast<int>(n));
}

// ---- Odd functions: f(x) = x + k x^3 + x^3 P(x^2). k has 11 bits; P(0) is the rest of it ----

/// f(a + b) in two parts, where a has 14 bits, and b is at most 2^-13 of it. The first part, k a^3,
/// is exact; a itself is to be added.
struct OddSeries {
  double cube;
  double rest;
};

template <std::size_t kTerms>
TESSERA_CORE OddSeries odd_series(double a, double b, double k,
                                  const std::array<double, kTerms>& tail) {
  const double x = a + b, square = x * x;
  return {.cube = k * (a * a * a),
          .rest = b + k * b * (square + x * a + a * a) + x * square * polynomial(tail, square)};
}

// ---- ln(x) = n ln(2) + 2 atanh(s) with x = 2^n z, s = (z - 1) / (z + 1), |s| < 0.172 ----

constexpr double kThird = 0x1.554p-2;
constexpr std::array kAtanhTail = {
    0x1.5555555555555p-14, 0x1.999999999999ap-3, 0x1.2492492492485p-3, 0x1.c71c71c71f2ffp-4,
    0x1.745d1743765e1p-4,  0x1.3b13b2644add0p-4, 0x1.1110b809a7e9dp-4, 0x1.e202cde1e1cd5p-5,
    0x1.ab7faeeba5a00p-5,  0x1.befc7f8a7f25dp-5};

/// ln(x 2^exponent) with an error of 2^-63 of it. x is positive, finite and not subnormal.
TESSERA_CORE TwoDoubles logarithm_of(double x, double exponent = 0.0) {
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd, kOne = 0x3ff0000000000000;
  constexpr double kLargeWhole = 0x1p52;  // its last bits are a whole number
  const auto shifted = std::bit_cast<std::uint64_t>(x) + (kOne - kSqrtHalf);
  const auto biased =
      std::bit_cast<double>(shifted >> 52 | std::bit_cast<std::uint64_t>(kLargeWhole));
  const double n = biased - (kLargeWhole + 1023) + exponent;
  const auto z = std::bit_cast<double>((shifted & 0xfffffffffffff) + kSqrtHalf);  // sqrt(1/2) on
  // s = a + b. z + 1 may have 54 bits; with its first 32 the division's remainder is exact.
  const double difference = z - 1.0, sum = z + 1.0;
  const double sum_high = leading<32>(sum), sum_low = z - (sum_high - 1.0);
  const double a = leading<14>(difference / sum);
  const double b = ((difference - a * sum_high) - a * sum_low) / sum;
  const OddSeries series = odd_series(a, b, kThird, kAtanhTail);
  const TwoDoubles first = ordered_sum(n * kLn2High, 2.0 * a);
  const TwoDoubles second = ordered_sum(first.high, 2.0 * series.cube);
  return ordered_sum(second.high, first.low + second.low + (2.0 * series.rest + n * kLn2Low));
}

/// The same for every positive and finite x.
TwoDoubles any_logarithm_of(double x) {
  const bool subnormal = x < std::numeric_limits<double>::min();
  return subnormal ? logarithm_of(x * 0x1p54, -54.0) : logarithm_of(x);
}

// ---- sin(x), cos(x) = +-sin(r) or +-cos(r) with r = x - n pi / 2, |r| <= pi / 4 ----

constexpr double kSixth = 0x1.554p-3;
constexpr std::array kSineTail = {  // sin(r) = r - kSixth r^3 + r^3 P(r^2)
    -0x1.5555555555555p-15, 0x1.1111111111111p-7,  -0x1.a01a01a01a019p-13, 0x1.71de3a556c2c7p-19,
    -0x1.ae64567e72e9ap-26, 0x1.61245fb4bee94p-33, -0x1.ae7c5370664f0p-41, 0x1.92428e5825432p-49};
constexpr std::array kCosineTail = {  // cos(r) = 1 - r^2 / 2 + r^4 P(r^2)
    0x1.5555555555555p-5,  -0x1.6c16c16c16c16p-10, 0x1.a01a01a019d09p-16, -0x1.27e4fb7712b8cp-22,
    0x1.1eed8deb644b7p-29, -0x1.9394b9bb6e16dp-37, 0x1.ab782b04de8dep-45};

struct ReducedAngle {
  std::uint64_t quadrant;  // n modulo 4 in its last two bits
  TwoDoubles r;
};

/// pi / 2 is subtracted n times in four parts. Up to kLargestAngle n has 24 bits, and each of the
/// first three parts 29: their products are exact. The last one makes an error of 2^-117.
TESSERA_CORE ReducedAngle reduce(double x) {
  constexpr double kPerQuarter = 0x1.45f306dc9c883p-1;
  constexpr double kPart1 = 0x1.921fb54p0, kPart2 = 0x1.10b4611p-30, kPart3 = 0x1.4c4c662p-59,
                   kPart4 = 0x1.1701b839a2520p-88;
  const double turns = x * kPerQuarter + kWhole, n = turns - kWhole;
  const TwoDoubles second = exact_sum(x - n * kPart1, -(n * kPart2));
  const TwoDoubles third = exact_sum(second.high, -(n * kPart3));
  return {.quadrant = std::bit_cast<std::uint64_t>(turns),
          .r = ordered_sum(third.high, second.low + third.low - n * kPart4)};
}

TESSERA_CORE double sine_of(const TwoDoubles& r) {
  const double a = leading<14>(r.high);
  const OddSeries series = odd_series(a, (r.high - a) + r.low, -kSixth, kSineTail);
  const TwoDoubles sum = ordered_sum(a, series.cube);
  return sum.high + (sum.low + series.rest);
}

TESSERA_CORE double cosine_of(const TwoDoubles& r) {
  const double a = leading<26>(r.high), square = r.high * r.high;
  const double rest = square * square * polynomial(kCosineTail, square) -
                      (0.5 * (r.high - a) * (r.high + a) + r.high * r.low);
  const TwoDoubles sum = ordered_sum(1.0, -0.5 * a * a);
  return sum.high + (sum.low + rest);
}

struct SineAndCosine {
  double sine, cosine;
};

TESSERA_CORE SineAndCosine sine_and_cosine_of(double x) {
  const auto [quadrant, r] = reduce(x);
  const auto sine = std::bit_cast<std::uint64_t>(sine_of(r));
  const auto cosine = std::bit_cast<std::uint64_t>(cosine_of(r));
  const std::uint64_t exchanged = (sine ^ cosine) & -(quadrant & 1);  // in odd quadrants
  const auto negated = [](std::uint64_t turns) { return (turns & 2) << 62; };
  return {std::bit_cast<double>(sine ^ exchanged ^ negated(quadrant)),
          std::bit_cast<double>(cosine ^ exchanged ^ negated(quadrant + 1))};
}

void check_angle(double x) {
  check(std::fabs(x) <= kLargestAngle, "the angle {} has no sine; the largest is {:.0f} radians", x,
        kLargestAngle);
}

}  // namespace

double sine(double x) {
  check_angle(x);
  return sine_and_cosine_of(x).sine;
}

double cosine(double x) {
  check_angle(x);
  return sine_and_cosine_of(x).cosine;
}

void sines_and_cosines(std::span<const double> angles, double* sines, double* cosines) {
  for (const double angle : angles) check_angle(angle);
  for (std::size_t i = 0; i < angles.size(); ++i) {
    const auto [sine, cosine] = sine_and_cosine_of(angles[i]);
    sines[i] = sine;
    cosines[i] = cosine;
  }
}

double exponential(double x) {
  return exponential_of({x, 0.0});
}

double logarithm(double x) {
  if (x == 0.0) return -std::numeric_limits<double>::infinity();
  if (!(x > 0.0)) return std::numeric_limits<double>::quiet_NaN();
  if (std::isinf(x)) return x;
  return any_logarithm_of(x).high;
}

void logarithms(std::span<double> values) {
  for (double& value : values) value = logarithm_of(value).high;
}

double power(double base, double exponent) {
  if (exponent == 0.0) return 1.0;
  if (base == 0.0 || std::isinf(base)) return (base == 0.0) == (exponent > 0.0) ? 0.0 : INFINITY;
  if (!(base > 0.0)) return std::numeric_limits<double>::quiet_NaN();
  // A product of factors of 26 bits is exact.
  const TwoDoubles log = any_logarithm_of(base);
  const double log_high = leading<26>(log.high), exponent_high = leading<26>(exponent);
  const double rest = exponent_high * (log.high - log_high) +
                      (exponent - exponent_high) * log.high + exponent * log.low;
  return exponential_of({exponent_high * log_high, rest});
}

}  // namespace tessera

#undef TESSERA_CORE
