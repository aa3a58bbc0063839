// The work that benchmarks train on: a configuration by name, and random tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tools/config/config.h"
#include "tools/train/session.h"

namespace tessera {

/// The configuration of `model` with overrides, as find_config (tools/config/find.h) finds it: a
/// file, or a preset, whose batch is then 4 x 256 tokens. "tiny" is a GPT-2 of 3 layers with odd
/// sizes (257 tokens, width 24, sequences of 19). Presets and tiny clip gradients to a norm of 0.1,
/// which every step exceeds. Raises Error if there is no such model.
Config workload(const std::string& model, std::span<const std::string> overrides);

/// Uniform random tokens, a function of step and row alone. The time of a step does not depend on
/// the values of the tokens.
TrainingSession::BatchSource random_tokens(const DataConfig& data, std::int64_t vocab_size);

}  // namespace tessera
