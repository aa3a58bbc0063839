// What benchmarks train on: a model by name, random tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "tools/config/config.h"
#include "tools/train/session.h"

namespace tessera {

/// `model` is a configuration file, a preset (its batch is 4 rows of 256 tokens), or "tiny": a
/// GPT-2 of 3 layers whose 257 tokens and other sizes few numbers divide. Presets clip to a norm
/// that every gradient exceeds. `batch` and `sequence` count if they are not 0. There is one
/// micro-batch per step and rank.
Config workload(const std::string& model, std::int64_t batch, std::int64_t sequence);

/// What a person asks for on the command line; empty: as the configuration says.
struct RuntimeChoices {
  std::string device, dtype, attention;
};

/// Raises Error that names the option if a device is no device.
void apply(const RuntimeChoices& choices, Config& config);

/// Of an option `--device`. Raises Error if it is no device.
Device device_of_option(const std::string& text);

/// Uniform random tokens, a function of step and row alone: the work of a step does not depend on
/// what the tokens are.
TrainingSession::BatchSource random_tokens(const DataConfig& data, std::int64_t vocab_size);

/// The middle value (the upper one of two). Raises Error if there are none.
double median(std::vector<double> values);

}  // namespace tessera
