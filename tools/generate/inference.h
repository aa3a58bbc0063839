// A trained model on one or several ranks, ready to compute without gradients.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "models/peft.h"
#include "runtime/dtype.h"
#include "sharding/plan/options.h"
#include "tools/config/config.h"

namespace tessera {

struct InferenceOptions {
  /// A run folder, a Hugging Face model folder, or a name on the hub (models/hugging_face.h).
  std::filesystem::path model;
  /// An adapter to use on the model (models/peft.h), or empty. `model` itself may be an adapter, or a run that has
  /// trained one.
  std::filesystem::path adapter = {};
  /// A text that parse_device (runtime/device.h) reads.
  std::string device = "auto";
  int threads = 0;
  /// 0: the launcher's number, or 1.
  int ranks = 0;
  /// Weights, activations and the cache of keys and values are kept in it.
  DType dtype = DType::f32;
};

/// The folder of the model's tokenizer: the adapter's if the base has none.
std::filesystem::path tokenizer_folder(const ModelFiles& files);

/// The settings of the run that made the model of this folder. No value unless it is the folder model/ of a
/// run.
std::optional<Config> config_of_run(const std::filesystem::path& folder);

/// How the ranks share the weights of a model in this folder: the strategy of the run that made it,
/// if it is the folder model/ of a run, or fsdp; one rank has them all. The ranks share out experts as
/// the run's did, if their number allows it.
ShardingOptions inference_sharding(const std::filesystem::path& folder, DType dtype, int ranks);

/// Calls `body`, which computes with a model. If it has too little memory, the Error's line ends
/// with ways to need less: `less_work` ("a smaller --batch"), and for the weights a smaller dtype
/// and more ranks.
void with_inference_advice(const InferenceOptions& options, std::vector<std::string> less_work,
                           const std::function<void()>& body);

/// Loads the model and calls `body` on every rank. With several ranks each keeps its share of the
/// weights. Every rank must then make the same calls to the model: they are collectives, and give
/// every rank the same bits. Raises Error if the model cannot be read.
void run_model(const InferenceOptions& options, const std::function<void(LanguageModel&)>& body);

}  // namespace tessera
