// The options of every command that computes with a trained model.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "runtime/dtype.h"

namespace tessera {

/// `options` has the members of InferenceOptions (tools/generate/inference.h) and lives as long as
/// `command`.
template <typename Options>
void add_model_options(CLI::App& command, Options& options) {
  command
      .add_option("--model", options.model,
                  "A run folder, a Hugging Face model folder, or org/name in the hub's cache")
      ->required()
      ->type_name("DIR");
  command
      .add_option_function<std::string>(
          "--dtype", [&options](const std::string& name) { options.dtype = dtype_from_name(name); },
          "f32, bf16 or f16: of weights, activations and the cache; f32 by default")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command
      .add_option("--ranks", options.ranks,
                  "Ranks that share the weights, as threads; 1 without a launcher")
      ->check(CLI::PositiveNumber);
  command.add_option("--device", options.device, "auto, cpu, cuda or cuda:N")
      ->capture_default_str();
  command.add_option("--threads", options.threads, "Of each rank; 0: all cores")
      ->capture_default_str();
}

}  // namespace tessera
