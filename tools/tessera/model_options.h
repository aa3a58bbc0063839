// The options of every command that computes with a trained model.
#pragma once

#include <string>

#include "runtime/dtype.h"

namespace tessera {

/// `options` has the members of InferenceOptions (tools/generate/inference.h) and lives as long as
/// `command`.
template <typename Options>
void add_model_options(Command& command, Options& options) {
  command
      .option("--model", options.model,
              "A run folder, a Hugging Face model folder, or org/name in the hub's cache")
      .required()
      .type("DIR");
  command
      .option("--adapter", options.adapter,
              "An adapter to use on the model: a folder of PEFT, or a run that has trained one")
      .type("DIR");
  command
      .option_function(
          "--dtype", [&options](const std::string& name) { options.dtype = dtype_from_name(name); },
          "f32, bf16 or f16: of weights, activations and the cache; f32 by default")
      .one_of({"f32", "bf16", "f16"});
  command
      .option("--ranks", options.ranks,
              "Ranks that share the weights, as threads; 1 without a launcher")
      .positive();
  command.option("--device", options.device, "auto, cpu, cuda or cuda:N").shows_default();
  command.option("--threads", options.threads, "Of each rank; 0: all cores").shows_default();
}

}  // namespace tessera
