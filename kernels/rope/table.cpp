#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/rope/op.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/elementary.h"

namespace tessera {
namespace {

// Frequencies are computed in T: double, or float for RopeAngles::f32. The order of operations is
// that of Transformers' modeling_rope_utils.py, so that float gives its bits.

void check_scaling(const std::monostate&, std::int64_t) {}

void check_scaling(const LinearScaling& scaling, std::int64_t) {
  check(scaling.factor > 0.0, "rope_frequencies: factor is {}; it must be positive",
        scaling.factor);
}

void check_scaling(const Llama3Scaling& scaling, std::int64_t) {
  check(scaling.factor > 0.0 && scaling.original_context > 0.0 &&
            scaling.high_frequency_factor >= scaling.low_frequency_factor,
        "rope_frequencies: factor is {}, original_context {}, low_frequency_factor {} and "
        "high_frequency_factor {}; the first two must be positive, and the high factor at least "
        "the low one",
        scaling.factor, scaling.original_context, scaling.low_frequency_factor,
        scaling.high_frequency_factor);
}

void check_scaling(const YarnScaling& scaling, std::int64_t) {
  check(scaling.factor > 0.0 && scaling.original_context > 0.0 && scaling.slow_periods > 0.0 &&
            scaling.fast_periods >= scaling.slow_periods && scaling.amplitude.value_or(1.0) > 0.0,
        "rope_frequencies: factor is {}, original_context {}, fast_periods {}, slow_periods {} and "
        "amplitude {}; all must be positive, and the fast periods at least the slow ones",
        scaling.factor, scaling.original_context, scaling.fast_periods, scaling.slow_periods,
        scaling.amplitude.value_or(1.0));
}

void check_scaling(const DynamicScaling& scaling, std::int64_t head_size) {
  check(
      scaling.factor > 0.0 && scaling.original_context > 0.0 && head_size > 2,
      "rope_frequencies: factor is {}, original_context {} and head_size {}; the first two must be "
      "positive, and head_size at least 4",
      scaling.factor, scaling.original_context, head_size);
}

void check_scaling(const LongRopeScaling& scaling, std::int64_t head_size) {
  check(scaling.original_context > 0.0 && scaling.amplitude > 0.0,
        "rope_frequencies: original_context is {} and amplitude {}; both must be positive",
        scaling.original_context, scaling.amplitude);
  for (const auto* const factors : {&scaling.short_factors, &scaling.long_factors}) {
    const bool positive =
        std::all_of(factors->begin(), factors->end(), [](double f) { return f > 0.0; });
    check(std::ssize(*factors) == head_size / 2 && positive,
          "rope_frequencies: {} are the numbers [{}]; expected {} positive ones, one for each pair "
          "of channels",
          factors == &scaling.short_factors ? "short_factors" : "long_factors",
          fmt::join(*factors, ", "), head_size / 2);
  }
}

/// Theta, or the theta of a long sequence.
template <typename T>
double theta_of(const RopeScaling& scaling, double theta, std::int64_t head_size,
                std::int64_t length) {
  const auto* const dynamic = std::get_if<DynamicScaling>(&scaling);
  if (dynamic == nullptr) return theta;
  const auto channels = static_cast<double>(head_size);
  const T stretch = static_cast<T>(dynamic->factor) * static_cast<T>(length) /
                        static_cast<T>(dynamic->original_context) -
                    static_cast<T>(dynamic->factor - 1.0);
  const T growth = static_cast<T>(power(stretch, static_cast<T>(channels / (channels - 2.0))));
  return static_cast<T>(theta) * growth;
}

/// The factor that divides the frequency of a pair before the other kinds of scaling.
double factor_of(const RopeScaling& scaling, std::int64_t pair, std::int64_t length) {
  const auto* const longrope = std::get_if<LongRopeScaling>(&scaling);
  if (longrope == nullptr) return 1.0;
  const bool is_long = static_cast<double>(length) > longrope->original_context;
  const auto& factors = is_long ? longrope->long_factors : longrope->short_factors;
  return factors[static_cast<std::size_t>(pair)];
}

/// Without a change after theta_of and factor_of.
template <typename Scaling, typename T>
void apply(const Scaling&, std::vector<T>&, double) {}

template <typename T>
void apply(const LinearScaling& scaling, std::vector<T>& frequencies, double) {
  for (T& f : frequencies) f /= static_cast<T>(scaling.factor);
}

template <typename T>
void apply(const Llama3Scaling& scaling, std::vector<T>& frequencies, double) {
  const T low = static_cast<T>(scaling.low_frequency_factor);
  const T high = static_cast<T>(scaling.high_frequency_factor);
  const T factor = static_cast<T>(scaling.factor);
  for (T& f : frequencies) {
    const T wavelength = static_cast<T>(2.0 * std::numbers::pi) / f;
    // Periods of the wave in the original context.
    const T periods = static_cast<T>(scaling.original_context) / wavelength;
    if (periods >= high) continue;
    if (periods < low) {
      f /= factor;
      continue;
    }
    const T blend = (periods - low) / (high - low);
    const T slow = (T{1} - blend) * f / factor, kept = blend * f;
    f = slow + kept;
  }
}

template <typename T>
void apply(const YarnScaling& scaling, std::vector<T>& frequencies, double theta) {
  const auto pairs = static_cast<double>(frequencies.size());
  const auto pair_with = [&](double periods) {
    const double waves = scaling.original_context / (periods * 2.0 * std::numbers::pi);
    return 2.0 * pairs * logarithm(waves) / (2.0 * logarithm(theta));
  };
  double first = pair_with(scaling.fast_periods), last = pair_with(scaling.slow_periods);
  if (scaling.whole_pairs) first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0);
  last = std::min(last, 2.0 * pairs - 1.0);
  if (first == last) last += 0.001;  // a step
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const T place = (static_cast<T>(i) - static_cast<T>(first)) / static_cast<T>(last - first);
    const T kept = T{1} - std::clamp(place, T{0}, T{1});
    const T f = frequencies[i];
    const T slow = f / static_cast<T>(scaling.factor);
    const T slow_part = slow * (T{1} - kept), kept_part = f * kept;
    frequencies[i] = slow_part + kept_part;
  }
}

template <typename T>
std::vector<double> frequencies_in(std::int64_t head_size, double theta, const RopeScaling& scaling,
                                   std::int64_t length) {
  std::vector<T> frequencies;
  const double base = theta_of<T>(scaling, theta, head_size, length);
  for (std::int64_t i = 0; i < head_size; i += 2) {
    const T exponent = static_cast<T>(i) / static_cast<T>(head_size);
    const T slowing = static_cast<T>(factor_of(scaling, i / 2, length)) *
                      static_cast<T>(power(base, static_cast<double>(exponent)));
    frequencies.push_back(T{1} / slowing);
  }
  std::visit([&](const auto& kind) { apply(kind, frequencies, theta); }, scaling);
  return {frequencies.begin(), frequencies.end()};
}

double amplitude_of(const RopeScaling& scaling) {
  if (const auto* const longrope = std::get_if<LongRopeScaling>(&scaling))
    return longrope->amplitude;
  const auto* const yarn = std::get_if<YarnScaling>(&scaling);
  if (yarn == nullptr) return 1.0;
  if (yarn->amplitude) return *yarn->amplitude;
  return yarn->factor <= 1.0 ? 1.0 : 0.1 * logarithm(yarn->factor) + 1.0;
}

}  // namespace

std::int64_t deciding_length(const RopeScaling& scaling, std::int64_t length) {
  if (const auto* const dynamic = std::get_if<DynamicScaling>(&scaling)) {
    return std::max(length, static_cast<std::int64_t>(dynamic->original_context));
  }
  if (const auto* const longrope = std::get_if<LongRopeScaling>(&scaling)) {
    const auto original = static_cast<std::int64_t>(longrope->original_context);
    return length > original ? original + 1 : 1;
  }
  return 0;
}

RopeFrequencies rope_frequencies(std::int64_t head_size, double theta, const RopeScaling& scaling,
                                 RopeAngles angles, std::int64_t length) {
  check(head_size >= 2 && head_size % 2 == 0,
        "rope_frequencies: head_size is {}; it must be even and at least 2", head_size);
  check(theta > 0.0, "rope_frequencies: theta is {}; it must be positive", theta);
  std::visit([&](const auto& kind) { check_scaling(kind, head_size); }, scaling);
  length = deciding_length(scaling, length);
  return {.of_pair = angles == RopeAngles::exact
                         ? frequencies_in<double>(head_size, theta, scaling, length)
                         : frequencies_in<float>(head_size, theta, scaling, length),
          .amplitude = amplitude_of(scaling),
          .angles = angles};
}

RopeTable rope_table(std::int64_t positions, const RopeFrequencies& frequencies, RopePairs pairs,
                     DType dtype) {
  const std::vector<double>& of_pair = frequencies.of_pair;
  check(positions >= 0 && !of_pair.empty(),
        "rope_table: there are {} positions and {} frequencies; positions must be at least 0 and "
        "frequencies at least 1",
        positions, of_pair.size());
  check(dtype == DType::f32 || dtype == DType::f64,
        "rope_table: the dtype is {}; it must be f32, or f64 for f64 heads", name_of(dtype));
  const bool in_f32 = frequencies.angles == RopeAngles::f32;
  const auto scaled = [&](double value) {
    if (!in_f32) return value * frequencies.amplitude;
    const float product = static_cast<float>(value) * static_cast<float>(frequencies.amplitude);
    return static_cast<double>(product);
  };
  const Shape shape{positions, static_cast<std::int64_t>(of_pair.size())};
  RopeTable table{.pairs = pairs};
  visit_floating(dtype, [&](auto type) {
    using T = decltype(type);
    std::vector<T> cosines(static_cast<std::size_t>(shape.numel())), sines = cosines;
    std::vector<double> angles(of_pair.size()), cosines_of = angles, sines_of = angles;
    const std::int64_t computed = context().is_dry() ? 0 : positions;
    for (std::int64_t position = 0; position < computed; ++position) {
      for (std::size_t pair = 0; pair < angles.size(); ++pair) {
        const double angle = static_cast<double>(position) * of_pair[pair];
        angles[pair] = in_f32 ? static_cast<float>(angle) : angle;
      }
      sines_and_cosines(angles, sines_of.data(), cosines_of.data());
      const auto first = position * static_cast<std::int64_t>(of_pair.size());
      for (std::size_t pair = 0; pair < angles.size(); ++pair) {
        cosines[first + pair] = static_cast<T>(scaled(cosines_of[pair]));
        sines[first + pair] = static_cast<T>(scaled(sines_of[pair]));
      }
    }
    table.cosine = Tensor::from(cosines, shape);
    table.sine = Tensor::from(sines, shape);
  });
  return table;
}

}  // namespace tessera
