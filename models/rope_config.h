// The rotary embedding's part of a config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "kernels/rope/op.h"
#include "models/config_reader.h"

namespace tessera {

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling;
  /// Exact for training; f32 repeats Transformers' numbers at far positions.
  RopeAngles angles = RopeAngles::exact;
};

/// Those of a sequence of `length` tokens. Raises Error as rope_frequencies does.
RopeFrequencies frequencies_of(const RopeConfig& rope, std::int64_t head_size, std::int64_t length);

/// The longest sequence of a model with this max_position_embeddings. That of a model with dynamic
/// scaling is the original context, which the factor stretches.
std::int64_t stretched_context(const RopeConfig& rope, std::int64_t positions);

/// Reads both dialects of Transformers:
///
///   4.x   rope_theta, and rope_scaling {rope_type or type, factor, ...}
///   5.x   rope_parameters {rope_theta, rope_type, factor, ...}
///
/// Either may name rope_angles, "exact" or "f32", which Transformers does not read.
///
/// `context`, the file's max_position_embeddings, is the original context where the file names none.
/// Raises Error for a kind of scaling that is not default, linear, llama3, yarn, dynamic or longrope,
/// for a part of the channels, and if both dialects are given.
RopeConfig read_rope(const ConfigReader& config, std::int64_t context,
                     double default_theta = 10000.0);

/// Adds rope_theta and rope_scaling (4.x) to a config.json, and rope_angles if they are not exact.
/// With dynamic scaling max_position_embeddings becomes the original context.
void write_rope(nlohmann::json& config, const RopeConfig& rope);

/// Raises Error unless every number is positive and finite.
void check_rope(const RopeConfig& rope, std::int64_t head_size);

}  // namespace tessera
