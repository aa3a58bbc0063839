#include "models/rope_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "models/transformer_shape.h"
#include "runtime/check.h"
#include "runtime/elementary.h"
#include "runtime/json.h"

namespace tessera {
namespace {

LinearScaling read_linear(const ConfigReader& scaling) {
  return {.factor = scaling.number("factor", 1.0)};
}

Llama3Scaling read_llama3(const ConfigReader& scaling, double context) {
  const Llama3Scaling defaults;
  return {
      .factor = scaling.number("factor", defaults.factor),
      .low_frequency_factor = scaling.number("low_freq_factor", defaults.low_frequency_factor),
      .high_frequency_factor = scaling.number("high_freq_factor", defaults.high_frequency_factor),
      .original_context = scaling.number("original_max_position_embeddings", context)};
}

/// YaRN's amplitude for a factor and a weight of its logarithm.
double yarn_amplitude(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * logarithm(factor) + 1.0;
}

/// A number; `fallback` if it is missing, null or 0, as in Transformers.
double number_or(const ConfigReader& scaling, const char* key, double fallback) {
  const double value = scaling.number(key, 0.0);
  return value == 0.0 ? fallback : value;
}

YarnScaling read_yarn(const ConfigReader& scaling, double context) {
  const double original = scaling.number("original_max_position_embeddings", context);
  YarnScaling result{.factor = scaling.number("factor", context / original),
                     .original_context = original,
                     .fast_periods = number_or(scaling, "beta_fast", 32.0),
                     .slow_periods = number_or(scaling, "beta_slow", 1.0),
                     .whole_pairs = scaling.flag("truncate", true)};
  const double numerator = scaling.number("mscale", 0.0);
  const double denominator = scaling.number("mscale_all_dim", 0.0);
  if (scaling.has("attention_factor")) {
    result.amplitude = scaling.number("attention_factor", 1.0);
  } else if (numerator != 0.0 && denominator != 0.0) {
    result.amplitude =
        yarn_amplitude(result.factor, numerator) / yarn_amplitude(result.factor, denominator);
  }
  return result;
}

void check_whole_head(const ConfigReader& reader) {
  const double part = reader.number("partial_rotary_factor", 1.0);
  check(part == 1.0,
        "config.json: partial_rotary_factor is {}; expected 1, the only supported value", part);
}

RopeAngles read_angles(const ConfigReader& config) {
  const std::string name = config.text("rope_angles", "exact");
  const auto names = enum_names<RopeAngles>();
  check(std::count(names.begin(), names.end(), name) > 0,
        "config.json: rope_angles is {}; expected exact or f32", excerpt(name));
  return enum_from_name<RopeAngles>(name);
}

DynamicScaling read_dynamic(const ConfigReader& scaling, double context) {
  return {.factor = scaling.number("factor", 1.0), .original_context = context};
}

LongRopeScaling read_longrope(const ConfigReader& config, const ConfigReader& scaling,
                              double context) {
  // Files of Phi-3 have the original context outside the object.
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const double original = config.number(kOriginal, scaling.number(kOriginal, context));
  const double factor = scaling.number("factor", context / original);
  const double usual =
      factor <= 1.0 ? 1.0 : std::sqrt(1.0 + logarithm(factor) / logarithm(original));
  return {.short_factors = scaling.numbers("short_factor"),
          .long_factors = scaling.numbers("long_factor"),
          .original_context = original,
          .amplitude = scaling.number("attention_factor", usual)};
}

RopeScaling read_scaling(const ConfigReader& config, const ConfigReader& scaling,
                         std::int64_t context) {
  const std::string kind = scaling.text("rope_type", scaling.text("type", "default"));
  const auto positions = static_cast<double>(context);
  if (kind == "default") return {};
  if (kind == "linear") return read_linear(scaling);
  if (kind == "llama3") return read_llama3(scaling, positions);
  if (kind == "yarn") return read_yarn(scaling, positions);
  if (kind == "dynamic") return read_dynamic(scaling, positions);
  if (kind == "longrope") return read_longrope(config, scaling, positions);
  fail("config.json: rope_type is {}; expected default, linear, llama3, yarn, dynamic or longrope",
       excerpt(kind));
}

nlohmann::json to_json(const std::monostate&) {
  return nullptr;
}

nlohmann::json to_json(const LinearScaling& scaling) {
  return {{"rope_type", "linear"}, {"factor", scaling.factor}};
}

/// A context as Transformers writes it: a whole number.
std::int64_t whole(double context) {
  return static_cast<std::int64_t>(context);
}

nlohmann::json to_json(const Llama3Scaling& scaling) {
  return {{"rope_type", "llama3"},
          {"factor", scaling.factor},
          {"low_freq_factor", scaling.low_frequency_factor},
          {"high_freq_factor", scaling.high_frequency_factor},
          {"original_max_position_embeddings", whole(scaling.original_context)}};
}

nlohmann::json to_json(const YarnScaling& scaling) {
  nlohmann::json result = {{"rope_type", "yarn"},
                           {"factor", scaling.factor},
                           {"original_max_position_embeddings", whole(scaling.original_context)},
                           {"beta_fast", scaling.fast_periods},
                           {"beta_slow", scaling.slow_periods},
                           {"truncate", scaling.whole_pairs}};
  if (scaling.amplitude) result["attention_factor"] = *scaling.amplitude;
  return result;
}

nlohmann::json to_json(const DynamicScaling& scaling) {
  return {{"rope_type", "dynamic"}, {"factor", scaling.factor}};
}

nlohmann::json to_json(const LongRopeScaling& scaling) {
  return {{"rope_type", "longrope"},
          {"short_factor", scaling.short_factors},
          {"long_factor", scaling.long_factors},
          {"original_max_position_embeddings", whole(scaling.original_context)},
          {"attention_factor", scaling.amplitude}};
}

/// None if the kind of scaling has none.
std::optional<double> original_context(const RopeScaling& scaling) {
  return std::visit(
      [](const auto& kind) -> std::optional<double> {
        if constexpr (requires { kind.original_context; }) return kind.original_context;
        return std::nullopt;
      },
      scaling);
}

}  // namespace

RopeFrequencies frequencies_of(const RopeConfig& rope, std::int64_t head_size,
                               std::int64_t length) {
  return rope_frequencies(head_size, rope.theta, rope.scaling, rope.angles, length);
}

std::int64_t stretched_context(const RopeConfig& rope, std::int64_t positions) {
  const auto* const dynamic = std::get_if<DynamicScaling>(&rope.scaling);
  if (dynamic == nullptr) return positions;
  const double stretched = std::max(1.0, dynamic->factor) * static_cast<double>(positions);
  return static_cast<std::int64_t>(std::clamp(stretched, -0x1p40, 0x1p40));
}

RopeConfig read_rope(const ConfigReader& config, std::int64_t context, double default_theta) {
  const auto old_dialect = config.object("rope_scaling");
  const auto new_dialect = config.object("rope_parameters");
  check(!old_dialect || !new_dialect,
        "config.json: rope_scaling and rope_parameters are both given; expected one of them");
  check_whole_head(config);
  RopeConfig result{.theta = config.number("rope_theta", default_theta),
                    .angles = read_angles(config)};
  if (const auto& scaling = new_dialect ? new_dialect : old_dialect) {
    check_whole_head(*scaling);
    result.theta = scaling->number("rope_theta", result.theta);
    result.scaling = read_scaling(config, *scaling, context);
  }
  return result;
}

void write_rope(nlohmann::json& config, const RopeConfig& rope) {
  config["rope_theta"] = rope.theta;
  config["rope_scaling"] =
      std::visit([](const auto& scaling) { return to_json(scaling); }, rope.scaling);
  if (const auto* const dynamic = std::get_if<DynamicScaling>(&rope.scaling)) {
    config["max_position_embeddings"] = whole(dynamic->original_context);
  }
  if (rope.angles != RopeAngles::exact) config["rope_angles"] = enum_name(rope.angles);
}

void check_rope(const RopeConfig& rope, std::int64_t head_size) {
  check(std::isfinite(rope.theta) && rope.theta > 1.0,
        "rope_theta is {}; expected a number above 1", rope.theta);
  const double context = original_context(rope.scaling).value_or(1.0);
  check(context >= 1.0 && context <= 0x1p40,
        "original_max_position_embeddings is {}; expected at least 1", context);
  for (const std::int64_t length : {std::int64_t{1}, LargestSizes::context}) {
    const RopeFrequencies frequencies = frequencies_of(rope, head_size, length);
    bool finite = std::isfinite(frequencies.amplitude);
    for (const double frequency : frequencies.of_pair) finite = finite && std::isfinite(frequency);
    check(finite, "rope_scaling gives frequencies that are not finite");
  }
}

}  // namespace tessera
