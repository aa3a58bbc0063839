#include "kernels/adamw/op.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "kernels/cast/op.h"
#include "kernels/columns/op.h"
#include "tests/kernels/optimizer_case.h"
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

const AdamWSettings kSettings = {.learning_rate = 0.02,
                                 .beta1 = 0.8,
                                 .beta2 = 0.95,
                                 .epsilon = 1e-3,
                                 .weight_decay = 0.3,
                                 .gradient_scale = 0.25,
                                 .step = 3};

/// Parameters in the middle of training, with their moments and gradients.
AdamWTensors tensors_of(std::int64_t count, DType gradient_dtype = DType::f32,
                        const std::string& name = "") {
  std::vector<float> squares = normal_tensor({count}, DType::f32, name + "v").to_vector<float>();
  for (float& value : squares) value *= 0.04f * value;
  return {.p = normal_tensor({count}, DType::f32, name + "p"),
          .m = normal_tensor({count}, DType::f32, name + "m", 0.1),
          .v = Tensor::from(squares, {count}),
          .gradient = normal_tensor({count}, gradient_dtype, name + "gradient")};
}

void update(const AdamWTensors& tensors, const AdamWSettings& settings) {
  adamw(std::span(&tensors, 1), settings);
}

Tensor converted(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor y = Tensor::empty(x.shape(), dtype);
  cast(y, x);
  return y;
}

Fp8Rounding rounding_by(double scale) {
  return {Tensor::full({1}, DType::f32, scale), Tensor::zeros({1}, DType::f32)};
}

/// x in e4m3.
Tensor rounded(const Tensor& x, const Fp8Rounding& by) {
  const Tensor y = Tensor::empty(x.shape(), DType::e4m3);
  fp8_quantize(y, {}, x, by.scale, by.largest);
  return y;
}

/// The nearest number with so many bits behind the point and such exponents, ties to even, in double.
double nearest(double x, int mantissa_bits, int least_exponent) {
  if (x == 0.0 || !std::isfinite(x)) return x;
  const double gap = std::ldexp(1.0, std::max(std::ilogb(x), least_exponent) - mantissa_bits);
  return gap * std::nearbyint(x / gap);
}

/// The e4m3 number of p in bf16 (OFP8, revision 1.0): 448 is the largest, and there is no infinity.
double nearest_e4m3(double p, double scale) {
  const double x = scale * nearest(p, 7, -126);
  if (!std::isfinite(x)) return NAN;
  return std::clamp(nearest(x, 3, -6), -448.0, 448.0);
}

/// The number of a byte: a sign, 4 bits of exponent and 3 of mantissa.
double value_of_e4m3(std::uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return NAN;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code < 0x80 ? magnitude : -magnitude;
}

/// Requires the copy in 8 bits of t's p, and the largest magnitude that it had before or that p has.
void require_rounded(const AdamWTensors& t, double scale, double before) {
  double largest = before;
  const Values p = to_doubles(t.p);
  const std::vector<std::uint8_t> codes = test::bytes_of(t.copy);
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double expected = nearest_e4m3(p[i], scale), found = value_of_e4m3(codes[i]);
    CAPTURE(i, p[i], expected, found);
    REQUIRE((found == expected || (std::isnan(found) && std::isnan(expected))));
    const double magnitude = std::fabs(nearest(p[i], 7, -126));
    if (!(magnitude <= largest)) largest = std::isnan(largest) ? largest : magnitude;
  }
  const double recorded = to_doubles(t.to_8_bits.largest).front();
  CAPTURE(recorded, largest);
  REQUIRE((recorded == largest || (std::isnan(recorded) && std::isnan(largest))));
}

/// For tests/kernels/optimizer_case.h. With p or moments in bf16 every element draws random bits.
template <DType parameter_dtype, DType moment_dtype = DType::f32, DType copy_dtype = DType::u8>
struct AdamWOf {
  using Tensors = AdamWTensors;
  using Settings = AdamWSettings;

  static Tensors make(std::int64_t count, DType gradient_dtype, const std::string& name) {
    Tensors t = tensors_of(count, gradient_dtype, name);
    t.p = converted(t.p, parameter_dtype);
    t.m = converted(t.m, moment_dtype);
    t.v = converted(t.v, moment_dtype);
    t.rounding = RandomStream(5, name, 3);
    t.elements = {.first = 1, .run = 7, .stride = 11};
    if constexpr (copy_dtype == DType::e4m3) {
      t.to_8_bits = rounding_by(64.0);
      t.copy = rounded(t.p, t.to_8_bits);
    } else if constexpr (copy_dtype != DType::u8) {
      t.copy = converted(t.p, copy_dtype);
    }
    return t;
  }
  static void update(std::span<const Tensors> list, const Settings& settings, const Tensor& scale) {
    adamw(list, settings, scale);
  }
  static Tensors slice(const Tensors& t, std::int64_t begin, std::int64_t end) {
    return {.p = t.p.slice(begin, end),
            .m = t.m.slice(begin, end),
            .v = t.v.slice(begin, end),
            .gradient = t.gradient.slice(begin, end),
            .copy = t.copy.defined() ? t.copy.slice(begin, end) : Tensor(),
            .to_8_bits = t.to_8_bits,
            .decay = t.decay,
            .rounding = t.rounding,
            .elements = t.elements.from(begin)};
  }
  static std::vector<Tensor> written(const Tensors& t) {
    if constexpr (copy_dtype == DType::e4m3) return {t.p, t.m, t.v, t.copy, t.to_8_bits.largest};
    if constexpr (copy_dtype != DType::u8) return {t.p, t.m, t.v, t.copy};
    return {t.p, t.m, t.v};
  }
  static std::vector<Settings> settings() { return {kSettings}; }
  static Settings without_decay(Settings settings) {
    settings.weight_decay = 0.0;
    return settings;
  }
};
using AdamW32 = AdamWOf<DType::f32>;
using AdamW16 = AdamWOf<DType::bf16>;
using AdamW32Moments16 = AdamWOf<DType::f32, DType::bf16, DType::bf16>;
using AdamW16Moments16 = AdamWOf<DType::bf16, DType::bf16, DType::f16>;
using AdamW32Copy16 = AdamWOf<DType::f32, DType::f32, DType::f16>;
using AdamW32Copy8 = AdamWOf<DType::f32, DType::f32, DType::e4m3>;

/// The update as the paper writes it (Algorithm 2), in double.
void reference_update(Values& p, Values& m, Values& v, const Values& gradient,
                      const AdamWSettings& s) {
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double g = gradient[i] * s.gradient_scale;
    m[i] = s.beta1 * m[i] + (1.0 - s.beta1) * g;
    v[i] = s.beta2 * v[i] + (1.0 - s.beta2) * g * g;
    const double m_hat = m[i] / (1.0 - std::pow(s.beta1, s.step));
    const double v_hat = v[i] / (1.0 - std::pow(s.beta2, s.step));
    p[i] -= s.learning_rate * (m_hat / (std::sqrt(v_hat) + s.epsilon) + s.weight_decay * p[i]);
  }
}

}  // namespace

TEST_CASE("adamw: p, m and v follow the paper's update") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t count : {0, 1, 17, 1000, 8192, 70'001}) {
      INFO(name_of(dtype) << " " << count);
      const AdamWTensors c = tensors_of(count, dtype);
      Values p = to_doubles(c.p), m = to_doubles(c.m), v = to_doubles(c.v);
      reference_update(p, m, v, to_doubles(c.gradient), kSettings);
      update(c, kSettings);
      REQUIRE(relative_error(to_doubles(c.p), p) <= 1e-7);
      REQUIRE(relative_error(to_doubles(c.m), m) <= 1e-7);
      REQUIRE(relative_error(to_doubles(c.v), v) <= 2e-7);
    }
  }
}

TEST_CASE("adamw: the bias correction survives a million steps with beta2 near 1") {
  const test::Rank rank;
  const AdamWTensors c = tensors_of(100);
  AdamWSettings settings = kSettings;
  settings.beta2 = 0.9999;
  for (const std::int64_t step : {std::int64_t{1}, std::int64_t{1'000'000}}) {
    settings.step = step;
    Values p = to_doubles(c.p), m = to_doubles(c.m), v = to_doubles(c.v);
    reference_update(p, m, v, to_doubles(c.gradient), settings);
    update(c, settings);
    REQUIRE(relative_error(to_doubles(c.p), p) <= 2e-7);
  }
}

TEST_CASE("adamw: the first step moves each parameter by the learning rate, for any gradient") {
  const test::Rank rank;
  const Tensor p = Tensor::zeros({3}, DType::f32), m = Tensor::zeros({3}, DType::f32),
               v = Tensor::zeros({3}, DType::f32);
  const Tensor gradient = Tensor::from(std::vector<float>{1e-6f, -3.0f, 1e6f}, {3});
  update({p, m, v, gradient}, {.learning_rate = 0.5, .epsilon = 0.0, .step = 1});
  REQUIRE(relative_error(to_doubles(p), {-0.5, 0.5, -0.5}) <= 3e-7);
}

TEST_CASE("adamw: a range gives the same bits whole or in pieces of any alignment") {
  test::check_pieces<AdamW32>();
  test::check_pieces<AdamW16>();
  test::check_pieces<AdamW16Moments16>();
  test::check_pieces<AdamW32Copy16>();
  test::check_pieces<AdamW32Copy8>();
}

TEST_CASE("adamw: one tensor that is not aligned changes no bit") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 301;
  const AdamWTensors whole = tensors_of(kCount);
  update(whole, kSettings);
  for (int misaligned = 0; misaligned < 4; ++misaligned) {
    AdamWTensors t = tensors_of(kCount);
    Tensor* const members[] = {&t.p, &t.m, &t.v, &t.gradient};
    const Tensor room = Tensor::zeros({kCount + 1}, DType::f32).slice(1, kCount + 1);
    room.copy_from(*members[misaligned]);
    *members[misaligned] = room;
    update(t, kSettings);
    test::require_equal<AdamW32>(t, whole);
  }
}

TEST_CASE("adamw: many tensors in one call, each with its own decay, neighbours untouched") {
  test::check_many_tensors<AdamW32>(DType::f32);
  test::check_many_tensors<AdamW32>(DType::bf16);
  test::check_many_tensors<AdamW32Moments16>(DType::f32);
  test::check_many_tensors<AdamW32Copy8>(DType::f32);
}

TEST_CASE("adamw: a scale on the device replaces the setting, and stops the update if not finite") {
  test::check_scale_on_device<AdamW32>();
  test::check_scale_on_device<AdamW32Moments16>();
  test::check_scale_on_device<AdamW32Copy8>();
}

TEST_CASE("adamw: the device gives the CPU's bits") {
  test::check_device_against_cpu<AdamW32>();
  test::check_device_against_cpu<AdamW16>();
  test::check_device_against_cpu<AdamW32Moments16>();
  test::check_device_against_cpu<AdamW16Moments16>();
  test::check_device_against_cpu<AdamW32Copy8>();
}

TEST_CASE("adamw: the same bits for any number of threads", "[cpu]") {
  test::check_threads<AdamW32>();
  test::check_threads<AdamW32Moments16>();
  test::check_threads<AdamW32Copy8>();
}

TEST_CASE("adamw: the copy has the bits of a cast of the new p") {
  const test::Rank rank;
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const DType p : {DType::f32, DType::bf16}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const std::int64_t count : {1, 7, 4096, 20'001}) {
        INFO(name_of(p) << " to " << name_of(dtype) << " " << count);
        AdamWTensors t = tensors_of(count);
        t.p = converted(t.p, p);
        t.copy = normal_tensor({count}, dtype, "old");
        // Values beyond f16, and of no finite number.
        const std::vector<float> special = {1e30f, -infinity, nan, -nan, 1e-7f, 70'000.0f};
        const auto n = std::min<std::int64_t>(count, std::ssize(special));
        const Tensor first = Tensor::from(std::vector(special.begin(), special.begin() + n), {n});
        t.p.slice(0, n).copy_from(converted(first, p));
        update(t, kSettings);
        REQUIRE(same_bits(t.copy, converted(t.p, dtype)));
      }
    }
  }
}

TEST_CASE(
    "adamw: the copy in 8 bits has the nearest numbers of the new p, and records its largest") {
  const test::Rank rank;
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const std::int64_t count : {1, 7, 4096, 20'001}) {
    // The last sees NaN, the one before infinity; those before cut numbers, and none, too.
    for (const auto& special : {std::vector<float>{0.03f},
                                {9.0f, -300.0f, 1e-7f},
                                {2.0f, -infinity},
                                {3.0f, infinity, nan}}) {
      CAPTURE(count, special);
      AdamWTensors t = tensors_of(count);
      const auto n = std::min<std::int64_t>(count, std::ssize(special));
      const Tensor first = Tensor::from(std::vector(special.begin(), special.begin() + n), {n});
      t.p.slice(0, n).copy_from(first);
      t.copy = Tensor::zeros({count}, DType::e4m3);
      for (const double before : {0.0, 100.0}) {
        t.to_8_bits = rounding_by(64.0);
        t.to_8_bits.largest.copy_from(Tensor::full({1}, DType::f32, before));
        update(t, kSettings);
        require_rounded(t, 64.0, before);
      }
      REQUIRE(same_bits(t.copy, rounded(t.p, t.to_8_bits)));
    }
  }
}

TEST_CASE("adamw: where p stays the copy in 8 bits has the scale of the step, and others stay") {
  const test::Rank rank;
  const Tensor scale = Tensor::full({1}, DType::f32, NAN);
  for (const std::int64_t count : {5, 9000}) {
    const AdamWTensors before = AdamW32Copy8::make(count, DType::f32, "");
    AdamWTensors t = AdamW32Copy8::make(count, DType::f32, "");
    t.to_8_bits = rounding_by(16.0);
    adamw(std::span(&t, 1), kSettings, scale);
    for (const auto tensor : {&AdamWTensors::p, &AdamWTensors::m, &AdamWTensors::v}) {
      REQUIRE(same_bits(t.*tensor, before.*tensor));
    }
    require_rounded(t, 16.0, 0.0);
    REQUIRE_FALSE(same_bits(t.copy, before.copy));
    const Tensor sevens = converted(Tensor::full({count}, DType::f32, 7.0), DType::bf16);
    t.copy = sevens.clone();
    adamw(std::span(&t, 1), kSettings, scale);
    REQUIRE(same_bits(t.copy, sevens));
  }
}

TEST_CASE("adamw: a copy in bf16 differs from p in f32, and a neighbour of a copy stays") {
  const test::Rank rank;
  AdamWTensors t = tensors_of(5000);
  const Tensor room = Tensor::from(std::vector(5002, bfloat16(7.0f)), {5002});
  t.copy = room.slice(1, 5001);  // at an odd address
  update(t, kSettings);
  REQUIRE(same_bits(t.copy, converted(t.p, DType::bf16)));
  REQUIRE(to_doubles(room).front() == 7.0);
  REQUIRE(to_doubles(room).back() == 7.0);
  REQUIRE(relative_error(to_doubles(t.copy), to_doubles(t.p)) > 1e-4);
  const Tensor bytes = Tensor::zeros({5002}, DType::e4m3);
  t.copy = bytes.slice(1, 5001);
  t.to_8_bits = rounding_by(64.0);
  update(t, kSettings);
  require_rounded(t, 64.0, 0.0);
  REQUIRE(test::bytes_of(bytes).front() == 0);
  REQUIRE(test::bytes_of(bytes).back() == 0);
}

/// The share of `values` that are `a`; all are `a` or `b`.
double share_of(const Values& values, double a, double b) {
  double count = 0.0;
  for (const double value : values) {
    REQUIRE((value == a || value == b));
    count += value == a ? 1.0 : 0.0;
  }
  return count / static_cast<double>(values.size());
}

TEST_CASE("adamw: bf16 moments round to one of two neighbours, with the right mean") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 40'000;
  // From 1, with g = 3: m = 1 + (1 - beta1) 2 and v = 1 + (1 - beta2) 8. The gap above 1 is 2^-7.
  // Rounding to nearest would leave both at 1 for ever.
  const AdamWTensors t = {.p = Tensor::zeros({kCount}, DType::f32),
                          .m = Tensor::from(std::vector(kCount, bfloat16(1.0f)), {kCount}),
                          .v = Tensor::from(std::vector(kCount, bfloat16(1.0f)), {kCount}),
                          .gradient = Tensor::full({kCount}, DType::f32, 3.0),
                          .rounding = RandomStream(1, "moments")};
  const double of_m = 0.25, of_v = 0.4;
  update(t, {.learning_rate = 0.5,
             .beta1 = 1.0 - of_m / 256,
             .beta2 = 1.0 - of_v / 1024,
             .epsilon = 0.0,
             .step = 1});
  const double gap = 1.0 / 128;
  const Values m = to_doubles(t.m), v = to_doubles(t.v);
  const auto noise = [](double part) { return 5 * std::sqrt(part * (1 - part) / kCount); };
  CHECK(std::fabs(share_of(m, 1.0 + gap, 1.0) - of_m) < noise(of_m));
  CHECK(std::fabs(share_of(v, 1.0 + gap, 1.0) - of_v) < noise(of_v));
  // p uses the moments before they are rounded: all elements move alike.
  const Values p = to_doubles(t.p);
  CHECK(std::all_of(p.begin(), p.end(), [&](double each) { return each == p.front(); }));
  // The two draws are independent.
  double both = 0.0;
  for (std::size_t i = 0; i < m.size(); ++i) both += m[i] > 1.0 && v[i] > 1.0 ? 1.0 : 0.0;
  CHECK(std::fabs(both / kCount - of_m * of_v) < noise(of_m * of_v));
}

/// bf16 parameters of value `start` that the first step moves by the learning rate before they
/// are rounded.
AdamWTensors moving(std::int64_t count, float start, std::string_view name) {
  return {.p = Tensor::from(std::vector<bfloat16>(count, bfloat16(start)), {count}),
          .m = Tensor::zeros({count}, DType::f32),
          .v = Tensor::zeros({count}, DType::f32),
          .gradient = Tensor::full({count}, DType::f32, 1.0),
          .rounding = RandomStream(1, name)};
}

TEST_CASE("adamw: bf16 parameters round to one of two neighbours, with the right mean") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 40'000;
  // Neighbours of 1 are 1 - 2^-8 and 1 + 2^-7; towards zero by 0.3 of the gap of 2^-8.
  for (const double part : {0.3, 0.5, 0.9}) {
    const AdamWTensors c = moving(kCount, 1.0f, "p");
    update(c, {.learning_rate = part / 256, .epsilon = 0.0});
    const double down = share_of(to_doubles(c.p), 1.0 - 1.0 / 256, 1.0);
    // Five standard deviations of a binomial share.
    REQUIRE(std::fabs(down - part) < 5 * std::sqrt(part * (1 - part) / kCount));
  }
}

TEST_CASE("adamw: bf16 parameters keep exact values, infinity and NaN") {
  const test::Rank rank;
  const AdamWTensors huge = moving(500, 3e38f, "p");
  update(huge, {.learning_rate = -3e38, .epsilon = 0.0});
  for (const double p : to_doubles(huge.p)) REQUIRE(p == std::numeric_limits<double>::infinity());
  for (const float value : {0.0f, -0.0f, 1.5f, -3e38f, 1e-40f}) {
    const AdamWTensors c = moving(500, value, "p");
    const Tensor before = c.p.clone();
    update(c, {.learning_rate = 0.0});
    REQUIRE(same_bits(c.p, before));
  }
  const AdamWTensors unknown = moving(500, NAN, "p");
  update(unknown, {.learning_rate = 0.0});
  for (const double p : to_doubles(unknown.p))
    REQUIRE(std::isnan(p));  // devices differ in its bits
}

/// Is each a neighbour of the value in bf16, and the largest finite one where the value is above it?
void require_neighbours(const Tensor& stored, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_exact = (bits & 0xffffu) == 0 || (bits & 0x7fffffffu) > 0x7f7f0000u;
  for (const bfloat16 each : stored.to_vector<bfloat16>()) {
    CAPTURE(value, each.bits);
    REQUIRE((each.bits == bits >> 16 || (!is_exact && each.bits == (bits >> 16) + 1)));
  }
}

TEST_CASE("adamw: a finite value is never rounded to infinity in bf16") {
  const test::Rank rank;
  constexpr float kLargest = 0x1.fep127f, kBelow = 0x1.fcp127f;  // the last finite bf16
  const float magnitudes[] = {kBelow,
                              0x1.fdp127f,
                              std::nextafter(kLargest, 0.0f),
                              kLargest,
                              std::nextafter(kLargest, INFINITY),
                              0x1.ffp127f,
                              std::numeric_limits<float>::max()};
  // Without memory of the past, m is the gradient, v its square, and p moves by the learning rate.
  const auto updated = [](float gradient, double learning_rate) {
    AdamWTensors c = {.p = Tensor::zeros({500}, DType::bf16),
                      .m = Tensor::zeros({500}, DType::bf16),
                      .v = Tensor::zeros({500}, DType::bf16),
                      .gradient = Tensor::full({500}, DType::f32, gradient),
                      .rounding = RandomStream(1, "largest")};
    update(c, {.learning_rate = learning_rate, .beta1 = 0.0, .beta2 = 0.0, .epsilon = 0.0});
    return c;
  };
  for (const float magnitude : magnitudes) {
    for (const float value : {magnitude, -magnitude}) {
      require_neighbours(updated(1.0f, -value).p, value);
      require_neighbours(updated(value, 0.0).m, value);
    }
    const float root = std::sqrt(magnitude);
    require_neighbours(updated(root, 0.0).v, root * root);
  }
}

/// The numbers of 16 bits that round an element with this word, as op.h has them.
struct Chances {
  explicit Chances(std::uint32_t word)
      : of_p(word >> 16), of_m(word & 0xffffu), of_v(word * kOfV >> 16) {}
  std::uint32_t of_p, of_m, of_v;
};

TEST_CASE("adamw: each element is rounded by three numbers from its word") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 1003;
  for (const std::int64_t first : {0, 5}) {
    AdamWTensors exact = tensors_of(kCount), rounded = exact;
    for (const auto tensor : {&AdamWTensors::p, &AdamWTensors::m, &AdamWTensors::v}) {
      rounded.*tensor = converted(exact.*tensor, DType::bf16);
      exact.*tensor = converted(rounded.*tensor, DType::f32);
    }
    rounded.rounding = RandomStream(8, "p", 2);
    rounded.elements.first = first;
    update(exact, kSettings);
    update(rounded, kSettings);
    const auto p = exact.p.to_vector<float>(), m = exact.m.to_vector<float>(),
               v = exact.v.to_vector<float>();
    const auto p16 = rounded.p.to_vector<bfloat16>(), m16 = rounded.m.to_vector<bfloat16>(),
               v16 = rounded.v.to_vector<bfloat16>();
    const auto up = [](float value, std::uint32_t chance) {
      return (std::bit_cast<std::uint32_t>(value) + chance) >> 16;
    };
    for (std::size_t i = 0; i < kCount; ++i) {
      const std::uint64_t e = i + static_cast<std::uint64_t>(first);
      const Chances chances(rounded.rounding.block<7>(e / 4)[e % 4]);
      REQUIRE(p16[i].bits == up(p[i], chances.of_p));
      REQUIRE(m16[i].bits == up(m[i], chances.of_m));
      REQUIRE(v16[i].bits == up(v[i], chances.of_v));
    }
  }
}

/// Whether counts are those of a uniform distribution, up to six standard deviations of chi-squared.
bool are_uniform(const std::vector<int>& counts) {
  const double bins = static_cast<double>(counts.size());
  double sum = 0.0, chi_squared = 0.0;
  for (const int count : counts) sum += count;
  for (const int count : counts) chi_squared += std::pow(count - sum / bins, 2) / (sum / bins);
  return std::fabs(chi_squared - (bins - 1)) < 6 * std::sqrt(2 * (bins - 1));
}

TEST_CASE("adamw: the numbers that round an element are uniform and independent", "[cpu]") {
  constexpr std::uint64_t kBlocks = 1 << 16;
  // The upper and the lower bytes alone, and the upper four bits of p, m and v together.
  std::vector<int> bytes[6], of_all(1 << 12);
  for (auto& counts : bytes) counts.resize(256);
  const RandomStream random(2, "uniform");
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    for (const std::uint32_t word : random.block<7>(block)) {
      const Chances c(word);
      ++of_all[(c.of_p >> 12) << 8 | (c.of_m >> 12) << 4 | c.of_v >> 12];
      const std::uint32_t numbers[] = {c.of_p, c.of_m, c.of_v};
      for (std::size_t i = 0; i < 3; ++i) {
        ++bytes[2 * i][numbers[i] >> 8];
        ++bytes[2 * i + 1][numbers[i] & 0xffu];
      }
    }
  }
  CHECK(are_uniform(of_all));
  for (const auto& counts : bytes) CHECK(are_uniform(counts));
}

TEST_CASE("adamw: p, m and v of an element are rounded without bias and independently") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 60'000;
  // As above: from 1 with g = 3, m and v move by these parts of the gap above 1; p by one of that below.
  for (const double part : {0.25, 0.5}) {
    const double of_m = part, of_v = 1 - part, of_p = 0.6 - part / 2;
    const AdamWTensors t = {
        .p = Tensor::from(std::vector(kCount, bfloat16(1.0f)), {kCount}),
        .m = Tensor::from(std::vector(kCount, bfloat16(1.0f)), {kCount}),
        .v = Tensor::from(std::vector(kCount, bfloat16(1.0f)), {kCount}),
        .gradient = Tensor::full({kCount}, DType::f32, 3.0),
        .rounding = RandomStream(1, "all", static_cast<std::uint64_t>(4 * part))};
    AdamWSettings settings = {
        .beta1 = 1.0 - of_m / 256, .beta2 = 1.0 - of_v / 1024, .epsilon = 0.0};
    const double m_hat = (1.0 + of_m / 128) / (of_m / 256);
    const double v_hat = (1.0 + of_v / 128) / (of_v / 1024);
    settings.learning_rate = of_p / 256 * std::sqrt(v_hat) / m_hat;
    update(t, settings);
    const Values p = to_doubles(t.p), m = to_doubles(t.m), v = to_doubles(t.v);
    // Products of the deviations of some of the three from their means. Their sum has this variance.
    for (int some = 1; some < 8; ++some) {
      double sum = 0.0, variance = 1.0;
      const auto deviation = [&](int bit, bool moved, double share) {
        return (some & bit) == 0 ? 1.0 : (moved ? 1.0 : 0.0) - share;
      };
      for (std::size_t i = 0; i < kCount; ++i) {
        sum += deviation(1, p[i] < 1.0, of_p) * deviation(2, m[i] > 1.0, of_m) *
               deviation(4, v[i] > 1.0, of_v);
      }
      for (const auto& [bit, share] : {std::pair{1, of_p}, {2, of_m}, {4, of_v}}) {
        if ((some & bit) != 0) variance *= share * (1.0 - share);
      }
      CAPTURE(part, some);
      CHECK(std::fabs(sum) < 5 * std::sqrt(variance * kCount));
    }
  }
}

TEST_CASE("adamw: bf16 neighbours, parameters and steps draw independent bits") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 20'000;
  const auto draws = [&](std::string_view name, std::int64_t first) {
    AdamWTensors c = moving(kCount, 1.0f, name);
    c.elements.first = first;
    update(c, {.learning_rate = 0.5 / 256, .epsilon = 0.0});
    std::vector<double> signs;
    for (const double p : to_doubles(c.p)) signs.push_back(p < 1.0 ? 1.0 : -1.0);
    return signs;
  };
  const auto correlation = [](const std::vector<double>& a, const std::vector<double>& b, int lag) {
    double sum = 0.0;
    for (std::size_t i = lag; i < a.size(); ++i) sum += a[i] * b[i - lag];
    return std::fabs(sum) / static_cast<double>(a.size());
  };
  const Values a = draws("a", 0), b = draws("b", 0);
  const double noise = 5 / std::sqrt(static_cast<double>(kCount));
  CHECK(correlation(a, b, 0) < noise);
  for (const int lag : {1, 2, 3, 4, 8, 1024}) CHECK(correlation(a, a, lag) < noise);
  // The address decides, not the place in the tensor.
  const Values shifted = draws("a", 7);
  CHECK(std::equal(a.begin() + 7, a.end(), shifted.begin()));
}

TEST_CASE("adamw: columns of a matrix in bf16 have the bits that they have in the matrix") {
  const test::Rank rank;
  constexpr std::int64_t kRows = 37, kColumns = 90;
  AdamWTensors whole = tensors_of(kRows * kColumns);
  for (Tensor* x : {&whole.p, &whole.m, &whole.v}) *x = converted(*x, DType::bf16);
  whole.rounding = RandomStream(5, "p", 3);
  for (const std::int64_t width : {1, 3, 30, 45}) {
    for (std::int64_t first = 0; first < kColumns; first += width) {
      CAPTURE(width, first);
      const auto columns_of = [&](const Tensor& x) {
        const Tensor columns = Tensor::empty({kRows, width}, x.dtype());
        copy_columns(columns, {x.reshape({kRows, kColumns}), first, width});
        return columns.reshape({kRows * width});
      };
      const AdamWTensors part = {.p = columns_of(whole.p),
                                 .m = columns_of(whole.m),
                                 .v = columns_of(whole.v),
                                 .gradient = columns_of(whole.gradient),
                                 .rounding = whole.rounding,
                                 .elements = {.first = first, .run = width, .stride = kColumns}};
      AdamWTensors all = whole;
      for (Tensor* x : {&all.p, &all.m, &all.v}) *x = x->clone();
      update(all, kSettings);
      update(part, kSettings);
      CHECK(same_bits(part.p, columns_of(all.p)));
      CHECK(same_bits(part.m, columns_of(all.m)));
      CHECK(same_bits(part.v, columns_of(all.v)));
    }
  }
}

TEST_CASE("adamw: wrong arguments are named") {
  const test::Rank rank;
  const AdamWTensors c = tensors_of(4);
  const Tensor five = Tensor::zeros({5}, DType::f32), i32 = Tensor::zeros({4}, DType::i32),
               bf16 = Tensor::zeros({4}, DType::bf16);
  REQUIRE_THROWS_WITH(update({c.p, five, c.v, c.gradient}, kSettings),
                      Contains("adamw: p is f32 [4] and m is f32 [5]"));
  REQUIRE_THROWS_WITH(update({c.p, c.m, bf16, c.gradient}, kSettings),
                      Contains("v is bf16 [4] and m is f32 [4]"));
  const Tensor f16m = Tensor::zeros({4}, DType::f16);
  REQUIRE_THROWS_WITH(update({c.p, f16m, f16m.clone(), c.gradient}, kSettings),
                      Contains("m is f16 [4]; its dtype must be f32 or bf16"));
  REQUIRE_THROWS_WITH(update({c.p, c.m, c.v, c.gradient, i32}, kSettings),
                      Contains("copy is i32 [4]"));
  REQUIRE_THROWS_WITH(update({c.p, c.m, c.v, c.gradient, five}, kSettings),
                      Contains("p is f32 [4] and copy is f32 [5]"));
  REQUIRE_THROWS_WITH(update({c.p, c.m, c.v, c.gradient, c.p}, kSettings),
                      Contains("copy overlaps p"));
  const Tensor e4m3 = Tensor::zeros({4}, DType::e4m3);
  REQUIRE_THROWS_WITH(update({c.p, c.m, c.v, c.gradient, e4m3}, kSettings),
                      Contains("scale is an undefined tensor"));
  REQUIRE_THROWS_WITH(
      update({c.p, c.m, c.v, c.gradient, e4m3, {five.slice(0, 1), five}}, kSettings),
      Contains("largest is f32 [5]"));
  const Tensor one = five.slice(0, 1);
  REQUIRE_THROWS_WITH(update({bf16, c.m, c.v, c.gradient, e4m3, {one, one}}, kSettings),
                      Contains("p is bf16 [4]; its dtype must be f32"));
  REQUIRE_THROWS_WITH(
      update({c.p, c.m, c.v, c.gradient, Tensor::zeros({4}, DType::e5m2)}, kSettings),
      Contains("copy is e5m2 [4]"));
  const Tensor f16 = Tensor::zeros({4}, DType::f16);
  REQUIRE_THROWS_WITH(update({f16, c.m, c.v, c.gradient}, kSettings),
                      Contains("p is f16 [4]; its dtype must be f32 or bf16"));
  REQUIRE_THROWS_WITH(update({c.p, c.m, c.v, i32}, kSettings), Contains("gradient is i32 [4]"));
  REQUIRE_THROWS_WITH(update({c.p, c.m, c.m, c.gradient}, kSettings), Contains("m overlaps v"));
  REQUIRE_THROWS_WITH(update({c.p, c.m, Tensor(), c.gradient}, kSettings),
                      Contains("v is an undefined tensor"));
  const std::vector<AdamWTensors> mixed = {c, tensors_of(4, DType::bf16)};
  REQUIRE_THROWS_WITH(adamw(mixed, kSettings),
                      Contains("gradient is bf16 [4] and the first gradient is f32 [4]"));
  REQUIRE_THROWS_WITH(adamw(std::span(&c, 1), kSettings, five), Contains("gradient_scale"));
  REQUIRE_THROWS_WITH(adamw(std::span(&c, 1), kSettings, bf16.slice(0, 1)),
                      Contains("gradient_scale is bf16 [1]"));
  AdamWSettings settings = kSettings;
  settings.step = 0;
  REQUIRE_THROWS_WITH(update(c, settings), Contains("steps are counted from 1"));
  settings = kSettings;
  settings.beta2 = 1.0;
  REQUIRE_THROWS_WITH(update(c, settings), Contains("beta2 is 1"));
}

}  // namespace tessera
