#include "kernels/rope/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <complex>
#include <numbers>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::to_doubles;

constexpr double kTheta = 10'000.0;

RopeTable table_for(std::int64_t positions, std::int64_t head_size, RopePairs pairs, DType dtype) {
  return rope_table(positions, rope_frequencies(head_size, kTheta), pairs, statistics_dtype(dtype));
}

/// Su et al., equation 12: a pair is a complex number, multiplied by e^(i p theta^(-2i / D)).
/// `positions` holds the position of every (b, t).
std::vector<double> turned(std::vector<double> x, const Heads& heads, RopePairs pairs,
                           const std::vector<std::int64_t>& positions, double sign) {
  const std::int64_t half = heads.head_size / 2;
  for (std::int64_t n = 0; n < heads.batch * heads.tokens; ++n) {
    const std::int64_t start = heads.offset + n / heads.tokens * heads.batch_stride +
                               n % heads.tokens * heads.token_stride;
    for (std::int64_t h = 0; h < heads.heads; ++h) {
      for (std::int64_t i = 0; i < half; ++i) {
        const bool split = pairs == RopePairs::half_split;
        double& a = x[start + h * heads.head_size + (split ? i : 2 * i)];
        double& b = x[start + h * heads.head_size + (split ? i + half : 2 * i + 1)];
        const double angle =
            sign * static_cast<double>(positions[n]) /
            std::exp(std::log(kTheta) * static_cast<double>(i) / static_cast<double>(half));
        const std::complex<double> z = std::complex<double>(a, b) * std::polar(1.0, angle);
        a = z.real(), b = z.imag();
      }
    }
  }
  return x;
}

std::vector<std::int64_t> running_positions(std::int64_t batch, std::int64_t tokens,
                                            std::int64_t first) {
  std::vector<std::int64_t> positions;
  for (std::int64_t n = 0; n < batch * tokens; ++n) positions.push_back(first + n % tokens);
  return positions;
}

struct Case {
  std::int64_t batch, tokens, channels, first_channel, heads, head_size;
};
// Plain; queries and keys of a packed tensor, with values that stay; heads of an odd number of
// pairs; a first channel that is not aligned; more pairs than a block has threads; one token; no
// tokens; one pair.
const std::vector<Case> kCases = {
    {2, 3, 16, 0, 1, 16},     {2, 5, 128, 0, 6, 16}, {1, 4, 30, 0, 5, 6},  {2, 3, 40, 3, 2, 16},
    {1, 2, 5120, 0, 40, 128}, {3, 1, 64, 0, 2, 32},  {2, 0, 16, 0, 1, 16}, {1, 3, 2, 0, 1, 2}};

/// The bound of a rotation's error: 3 roundings in f32 of numbers up to the pair's length, and the
/// storage's.
double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-14 : 4e-7 + test::unit_roundoff(dtype);
}

}  // namespace

TEST_CASE("rope rotates every pair by its position's angle and leaves other channels unchanged") {
  const test::Rank rank;
  for (const RopePairs pairs : {RopePairs::half_split, RopePairs::interleaved}) {
    for (const DType dtype : test::kFloating) {
      for (const Case& n : kCases) {
        CAPTURE(name_of(dtype), int(pairs), n.tokens, n.channels, n.heads, n.head_size);
        const RopeTable table = table_for(20, n.head_size, pairs, dtype);
        const Tensor x = normal_tensor({n.batch, n.tokens, n.channels}, dtype, "x");
        const Heads heads = heads_of(x, n.first_channel, n.heads, n.head_size);
        const auto before = to_doubles(x);
        const auto expected =
            turned(before, heads, pairs, running_positions(n.batch, n.tokens, 7), 1.0);
        rope_forward(heads, table, {.first = 7});
        const auto after = to_doubles(x);
        CHECK(test::worst_error(after, expected, 1.0) <= tolerance(dtype));
        for (std::size_t i = 0; i < after.size(); ++i) {
          const auto c = static_cast<std::int64_t>(i) % n.channels - n.first_channel;
          if (c < 0 || c >= n.heads * n.head_size) REQUIRE(after[i] == before[i]);
        }
        // Backward rotates the result by the negative angle.
        const auto back =
            turned(after, heads, pairs, running_positions(n.batch, n.tokens, 7), -1.0);
        rope_backward(heads, table, {.first = 7});
        CHECK(test::worst_error(to_doubles(x), back, 1.0) <= tolerance(dtype));
      }
    }
  }
}

TEST_CASE("rope: explicit positions, as of packed documents, under every schedule") {
  for (const RopePairs pairs : {RopePairs::half_split, RopePairs::interleaved}) {
    test::for_every_schedule([&] {
      const std::vector<std::int32_t> each = {0, 1, 2, 0, 1, 4, 4, 0, 9, 3};
      const Tensor positions = Tensor::from(each, {2, 5});
      const RopeTable table = table_for(12, 16, pairs, DType::f32);
      for (const std::int64_t first : {0, 2}) {
        const Tensor x = normal_tensor({2, 5, 48}, DType::f32, "x");
        const Heads heads = heads_of(x, 0, 2, 16);
        std::vector<std::int64_t> at;
        for (const std::int32_t position : each) at.push_back(first + position);
        const auto expected = turned(to_doubles(x), heads, pairs, at, 1.0);
        rope_forward(heads, table, {first, positions});
        CHECK(test::worst_error(to_doubles(x), expected, 1.0) <= 4e-7);
      }
    });
  }
}

TEST_CASE("rope has the same bits wherever its tensors begin, and under every schedule") {
  for (const RopePairs pairs : {RopePairs::half_split, RopePairs::interleaved}) {
    for (const DType dtype : test::kFloating) {
      test::require_equal_under_every_schedule([&] {
        const Tensor x = normal_tensor({2, 3, 96}, dtype, "x"), z = test::unaligned(x),
                     w = x.clone();
        const RopeTable table = table_for(3, 32, pairs, dtype);
        const RopeTable off = {test::unaligned(table.cosine), test::unaligned(table.sine), pairs};
        rope_forward(heads_of(x, 0, 2, 32), table);
        rope_forward(heads_of(z, 0, 2, 32), table);
        rope_forward(heads_of(w, 0, 2, 32), off);
        CHECK(test::same_bits(z, x));
        CHECK(test::same_bits(w, x));
        return test::bytes_of(x);
      });
    }
  }
}

TEST_CASE("rope: a token alone, as in decoding, gets the same bits as in a sequence") {
  const test::Rank rank;
  const RopeTable table = table_for(30, 32, RopePairs::half_split, DType::bf16);
  const Tensor all = normal_tensor({1, 30, 64}, DType::bf16, "x"), before = all.clone();
  rope_forward(heads_of(all, 0, 2, 32), table);
  for (const std::int64_t t : {0, 11, 29}) {
    const Tensor one = before.reshape({30, 64}).slice(t, t + 1).clone().reshape({1, 1, 64});
    rope_forward(heads_of(one, 0, 2, 32), table, {.first = t});
    CHECK(test::bytes_of(one) == test::bytes_of(all.reshape({30, 64}).slice(t, t + 1)));
  }
}

TEST_CASE("rope_table is exact at far positions") {
  // At position 131,071 the error of an angle in f32 would be up to 2^-8.
  const test::Rank rank;
  const auto frequencies = rope_frequencies(4, 500'000.0);
  const RopeTable table = rope_table(131'072, frequencies, RopePairs::half_split);
  const auto cosine = table.cosine.slice(131'071, 131'072).to_vector<float>();
  const auto sine = table.sine.slice(131'071, 131'072).to_vector<float>();
  // cos and sin of 131071 and of 131071 / sqrt(500000) = 185.36238...
  CHECK(cosine[0] == Approx(std::cos(131'071.0)).margin(1e-7));
  CHECK(sine[0] == Approx(std::sin(131'071.0)).margin(1e-7));
  CHECK(cosine[1] == Approx(std::cos(131'071.0 / std::sqrt(500'000.0))).margin(1e-7));
  CHECK(sine[1] == Approx(std::sin(131'071.0 / std::sqrt(500'000.0))).margin(1e-7));
}

TEST_CASE("rope_frequencies scales as Llama 3.1 does") {
  // Transformers' _compute_llama3_parameters, in terms of wavelengths.
  for (const double factor : {8.0, 32.0}) {
    const Llama3Scaling scaling{.factor = factor};
    const auto plain = rope_frequencies(128, 500'000.0).of_pair;
    const auto frequencies = rope_frequencies(128, 500'000.0, scaling).of_pair;
    int kept = 0, slowed = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const double wavelength = 2.0 * std::numbers::pi / plain[i];
      const double low_wavelength = 8192.0 / 1.0, high_wavelength = 8192.0 / 4.0;
      double expected;
      if (wavelength < high_wavelength) {
        expected = plain[i], ++kept;
      } else if (wavelength > low_wavelength) {
        expected = plain[i] / factor, ++slowed;
      } else {
        const double smooth = (8192.0 / wavelength - 1.0) / (4.0 - 1.0);
        expected = (1.0 - smooth) * plain[i] / factor + smooth * plain[i];
      }
      CHECK(frequencies[i] == Approx(expected).epsilon(1e-13));
    }
    CHECK(kept == 29);  // of 64; 6 others are blended
    CHECK(slowed == 29);
  }
}

TEST_CASE("rope_frequencies: equal low and high factors make the ramp a step") {
  // The formula above without its blend: waves with fewer than `turns` periods in the context are
  // slowed by 8, others kept.
  const double theta = 500'000.0, turns = 2.0;
  const Llama3Scaling step{.low_frequency_factor = turns, .high_frequency_factor = turns};
  const auto plain = rope_frequencies(128, theta).of_pair;
  const auto frequencies = rope_frequencies(128, theta, step).of_pair;
  int kept = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const bool slow = 2.0 * std::numbers::pi / plain[i] > 8192.0 / turns;
    CHECK(frequencies[i] == Approx(slow ? plain[i] / 8.0 : plain[i]).epsilon(1e-15));
    kept += !slow;
  }
  CHECK(kept == 32);  // 500,000^(-i / 64) > 2 pi 2 / 8192 for i < 31.6
  // A frequency exactly at the step is kept: here the first, 1, with two periods in the context.
  Llama3Scaling at_step = step;
  at_step.original_context = 4.0 * std::numbers::pi;
  CHECK(rope_frequencies(2, theta, at_step).of_pair == std::vector<double>{1.0});
  Llama3Scaling crossed = step;
  crossed.high_frequency_factor = 1.9;
  REQUIRE_THROWS_WITH(rope_frequencies(128, theta, crossed),
                      Catch::Contains("low_frequency_factor 2 and high_frequency_factor 1.9"));
}

TEST_CASE("rope_frequencies: linear scaling divides every frequency") {
  const auto plain = rope_frequencies(64, kTheta).of_pair;
  const RopeFrequencies scaled = rope_frequencies(64, kTheta, LinearScaling{.factor = 3.0});
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(scaled.of_pair[i] == plain[i] / 3.0);
  CHECK(scaled.amplitude == 1.0);
  REQUIRE_THROWS_WITH(rope_frequencies(64, kTheta, LinearScaling{.factor = 0.0}),
                      Catch::Contains("factor is 0"));
}

TEST_CASE("rope_frequencies scales as YaRN does") {
  // Peng et al. 2023, definition 2, in terms of wavelengths: the ramp is linear in the pair's
  // number, and log theta of a wavelength is linear in that number.
  const double theta = 1e6, context = 32'768.0, factor = 4.0;
  const YarnScaling scaling{.factor = factor, .original_context = context, .whole_pairs = false};
  const auto plain = rope_frequencies(128, theta).of_pair;
  const auto frequencies = rope_frequencies(128, theta, scaling).of_pair;
  int kept = 0, slowed = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double periods = context * plain[i] / (2.0 * std::numbers::pi);
    const double place = std::log(32.0 / periods) / std::log(32.0 / 1.0);
    const double ramp = std::min(std::max(place, 0.0), 1.0);
    CHECK(frequencies[i] ==
          Approx(plain[i] / factor * ramp + plain[i] * (1.0 - ramp)).epsilon(1e-12));
    kept += ramp == 0.0;
    slowed += ramp == 1.0;
  }
  CHECK(kept == 24);
  CHECK(slowed == 24);
  CHECK(rope_frequencies(128, theta, scaling).amplitude == Approx(0.1 * std::log(4.0) + 1.0));
  CHECK(rope_frequencies(128, theta, YarnScaling{.factor = 0.5}).amplitude == 1.0);
  REQUIRE_THROWS_WITH(rope_frequencies(128, theta, YarnScaling{.fast_periods = 0.5}),
                      Catch::Contains("fast_periods 0.5, slow_periods 1"));
}

TEST_CASE("rope_frequencies: dynamic scaling raises theta with the length") {
  // Transformers' _compute_dynamic_ntk_parameters.
  const DynamicScaling scaling{.factor = 2.0, .original_context = 100.0};
  for (const std::int64_t length : {1, 100, 101, 250}) {
    CAPTURE(length);
    const double stretch = 2.0 * std::max(100.0, static_cast<double>(length)) / 100.0 - 1.0;
    const auto expected = rope_frequencies(8, kTheta * std::pow(stretch, 8.0 / 6.0)).of_pair;
    const auto frequencies =
        rope_frequencies(8, kTheta, scaling, RopeAngles::exact, length).of_pair;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK(frequencies[i] == Approx(expected[i]).epsilon(1e-13));
    }
  }
  CHECK(deciding_length(scaling, 1) == deciding_length(scaling, 100));
  CHECK(deciding_length(scaling, 101) == 101);
  REQUIRE_THROWS_WITH(rope_frequencies(2, kTheta, scaling), Catch::Contains("head_size 2"));
}

TEST_CASE("rope_frequencies: longrope divides by the factors of short or of long sequences") {
  const LongRopeScaling scaling{.short_factors = {1.0, 2.0},
                                .long_factors = {4.0, 8.0},
                                .original_context = 100.0,
                                .amplitude = 1.5};
  const auto plain = rope_frequencies(4, kTheta).of_pair;
  const auto of = [&](std::int64_t length) {
    return rope_frequencies(4, kTheta, scaling, RopeAngles::exact, length);
  };
  CHECK(of(100).of_pair == std::vector<double>{plain[0], plain[1] / 2.0});
  CHECK(of(101).of_pair == std::vector<double>{plain[0] / 4.0, plain[1] / 8.0});
  CHECK(of(100).amplitude == 1.5);
  CHECK(of(101).amplitude == 1.5);
  CHECK(deciding_length(scaling, 1) == deciding_length(scaling, 100));
  CHECK(deciding_length(scaling, 101) == deciding_length(scaling, 1000));
  CHECK(deciding_length(scaling, 100) != deciding_length(scaling, 101));
}

TEST_CASE("rope_table multiplies cosines and sines by YaRN's amplitude") {
  const test::Rank rank;
  const YarnScaling scaling{.factor = 4.0, .amplitude = 1.25};
  const RopeTable plain =
      rope_table(1, rope_frequencies(8, kTheta), RopePairs::half_split, DType::f64);
  const RopeTable loud =
      rope_table(1, rope_frequencies(8, kTheta, scaling), RopePairs::half_split, DType::f64);
  CHECK(to_doubles(plain.cosine) == std::vector<double>(4, 1.0));
  CHECK(to_doubles(loud.cosine) == std::vector<double>(4, 1.25));
}

TEST_CASE("rope_table with f32 angles equals Transformers at far positions") {
  // LlamaRotaryEmbedding of transformers 5.23.0 at position 100,003. Exact cosines of pairs 1 to 4
  // differ from these by up to 1e-3.
  const test::Rank rank;
  struct FarCase {
    double theta;
    RopeScaling scaling;
    std::vector<double> frequencies, cosine, sine;
  };
  const FarCase llama3{5e5,
                       Llama3Scaling{},
                       {1, 0.193922758, 0.0376060307, 0.00729266508, 0.000524846022, 3.42810235e-05,
                        6.64786967e-06, 1.28917316e-06},
                       {0.984314859, -0.981235385, -0.973799825, 0.905221581, -0.605104208,
                        -0.959206998, 0.787035942, 0.991701186},
                       {-0.176420853, 0.19281359, -0.227406889, 0.424939901, 0.796146274,
                        -0.282704622, 0.616907179, 0.128564358}};
  const FarCase yarn{1e6,
                     YarnScaling{.factor = 4.0, .original_context = 32768.0},
                     {1, 0.177827939, 0.0316227786, 0.00421755994, 0.000500000024, 4.44569851e-05,
                      7.90569356e-06, 1.40585337e-06},
                     {1.12076986, -0.38283965, -0.40089336, 0.797177374, 1.09918654, -0.299928427,
                      0.800939202, 1.12739527},
                     {-0.200877979, 1.07233894, 1.06572115, 0.813010037, -0.297095984, -1.09841704,
                      0.809304357, 0.159552574}};
  const FarCase uneven_yarn{1e6,
                            YarnScaling{.factor = 4.0,
                                        .original_context = 32768.0,
                                        .fast_periods = 16.0,
                                        .slow_periods = 2.0,
                                        .whole_pairs = false,
                                        .amplitude = 1.25},
                            {1, 0.177827939, 0.0316227786, 0.00562341325, 0.000595679972,
                             4.44569851e-05, 7.90569356e-06, 1.40585337e-06},
                            {1.23039353, -0.420285612, -0.44010517, -1.24989223, -1.24093962,
                             -0.32926473, 0.879279912, 1.23766696},
                            {-0.220526069, 1.17722559, 1.16996038, -0.0164124537, 0.150228918,
                             -1.2058543, 0.888463259, 0.17515859}};
  const FarCase linear{1e4,
                       LinearScaling{.factor = 3.0},
                       {0.333333343, 0.0333333351, 0.00333333318, 0.000333333359},
                       {-0.450286865, -0.979306936, 0.944574118, -0.340654045},
                       {0.892883956, -0.202380672, 0.32829833, 0.940188706}};
  for (const FarCase& far : {llama3, yarn, uneven_yarn, linear}) {
    const auto pairs = static_cast<std::int64_t>(far.cosine.size());
    const auto frequencies = rope_frequencies(2 * pairs, far.theta, far.scaling, RopeAngles::f32);
    const RopeTable table = rope_table(100'004, frequencies, RopePairs::half_split);
    const auto cosine = to_doubles(table.cosine.slice(100'003, 100'004));
    const auto sine = to_doubles(table.sine.slice(100'003, 100'004));
    const RopeTable exact = rope_table(100'004, rope_frequencies(2 * pairs, far.theta, far.scaling),
                                       RopePairs::half_split);
    double difference = 0.0;
    for (std::size_t i = 0; i < cosine.size(); ++i) {
      CAPTURE(pairs, i);
      CHECK(frequencies.of_pair[i] == static_cast<float>(far.frequencies[i]));
      CHECK(cosine[i] == Approx(far.cosine[i]).margin(2e-7));
      CHECK(sine[i] == Approx(far.sine[i]).margin(2e-7));
      const double exact_cosine = to_doubles(exact.cosine.slice(100'003, 100'004))[i];
      difference = std::max(difference, std::abs(exact_cosine - cosine[i]));
    }
    CHECK(difference > 1e-5);
  }
}

TEST_CASE("rope names a position outside the table") {
  using Catch::Contains;
  const test::Rank rank;
  const RopeTable table = table_for(8, 16, RopePairs::half_split, DType::f32);
  for (const int wrong : {8, -1}) {
    const Tensor x = normal_tensor({1, 3, 16}, DType::f32, "x"), before = x.clone();
    const Tensor each = Tensor::from(std::vector<std::int32_t>{7, wrong, wrong}, {1, 3});
    const auto call = [&] {
      rope_forward(heads_of(x, 0, 1, 16), table, {.each = each});
      current_stream().synchronize();
    };
    REQUIRE_THROWS_WITH(
        call(), test::kOnGpu ? Contains("rope: the token at position 1 of the batch")
                             : Contains("rope: token 1 has position " + std::to_string(wrong)));
    const std::int64_t untouched = test::kOnGpu ? 1 : 0;
    CHECK(test::same_bits(x.reshape({3, 16}).slice(untouched, 3),
                          before.reshape({3, 16}).slice(untouched, 3)));
  }
}

TEST_CASE("rope refuses arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const RopeTable table = table_for(8, 16, RopePairs::half_split, DType::f32);
  const Tensor x = Tensor::zeros({2, 4, 32}, DType::f32);
  Heads heads = heads_of(x, 0, 2, 16);
  REQUIRE_THROWS_WITH(rope_forward(heads, table, {.first = 5}),
                      Contains("rope_forward: 4 tokens from position 5 on are too many"));
  REQUIRE_THROWS_WITH(rope_forward(heads, table, {.first = -1}), Contains("first position is -1"));
  REQUIRE_THROWS_WITH(rope_forward(heads_of(x, 0, 4, 8), table), Contains("cosine is f32 [8, 8]"));
  REQUIRE_THROWS_WITH(rope_backward(heads_of(x, 0, 2, 15), table),
                      Contains("must be even in number"));
  REQUIRE_THROWS_WITH(rope_forward(heads, {table.cosine, Tensor::zeros({7, 8}, DType::f32)}),
                      Contains("sine is f32 [7, 8]"));
  REQUIRE_THROWS_WITH(rope_forward(heads, {table.cosine, Tensor::zeros({8, 8}, DType::bf16)}),
                      Contains("sine is bf16"));
  REQUIRE_THROWS_WITH(rope_forward(heads, table, {.each = Tensor::zeros({2, 3}, DType::i32)}),
                      Contains("positions is i32 [2, 3]; its shape must be [2, 4]"));
  REQUIRE_THROWS_WITH(rope_forward(heads, table, {.each = Tensor::zeros({2, 4}, DType::i64)}),
                      Contains("positions is i64"));
  heads.token_stride = 31;
  REQUIRE_THROWS_WITH(rope_forward(heads, table), Contains("must not overlap"));
  heads.token_stride = 32;
  heads.offset = 1;
  REQUIRE_THROWS_WITH(rope_forward(heads, table),
                      Contains("x ends at element 257, outside its tensor"));
  REQUIRE_THROWS_WITH(rope_frequencies(7, kTheta), Contains("head_size is 7"));
  REQUIRE_THROWS_WITH(rope_frequencies(8, 0.0), Contains("theta is 0"));
  REQUIRE_THROWS_WITH(
      rope_table(4, rope_frequencies(8, kTheta), RopePairs::half_split, DType::bf16),
      Contains("bf16"));
}

}  // namespace tessera
