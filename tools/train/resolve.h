// Resolving a configuration: every value that a YAML file leaves open is decided here, once.
//
// train, plan and the benchmarks all start from resolve(), so one YAML file is one model in every
// program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "models/registry.h"
#include "sharding/plan/options.h"
#include "tools/config/config.h"

namespace tessera {

struct ResolvedConfig {
  /// As given, but with the model's layers, heads, width, context and vocabulary in place of zeros,
  /// and with a balance in place of `auto`.
  Config config;
  Hyperparameters model;
  /// The origin of the vocabulary size, for headers: "from data/mine/manifest.json".
  std::string vocabulary_origin;
  /// The token at which documents start; none: a row is one document.
  std::optional<std::int32_t> document_token;
  ShardingOptions sharding;
};

/// Reads the manifest next to data.train and the folder model.init_from, where they are named and
/// exist. Raises Error if keys contradict each other, the model or the data, with the place of the
/// key.
ResolvedConfig resolve(const Config& config);

/// The token that a value of data.document_token names: its number, or its spelling in the
/// tokenizer of this folder; none if the name is empty. Raises Error if the vocabulary has no such
/// token.
std::optional<std::int32_t> find_document_token(const std::string& name,
                                                const std::filesystem::path& tokenizer,
                                                std::int64_t vocab_size);

/// Whether a row of a batch has documents that do not see each other.
bool masks_documents(const ResolvedConfig& run);

/// Raises Error, with the place of the key, if model.frozen, adapter.targets, optimizer.groups,
/// sharding.activation_checkpointing, sharding.buckets or sharding.rules name parts that the model does not have.
void check_model_keys(const ResolvedConfig& run);

/// The model, without memory for its parameters. Its routers are ready to train.
std::unique_ptr<LanguageModel> make_model(const ResolvedConfig& run);

/// The elements of all parameters.
std::int64_t parameter_count(const LanguageModel& model);

/// "0.83M parameters (4 layers x 128, vocabulary 125 from data/mine/manifest.json)".
std::string describe_model(const ResolvedConfig& run);

/// Tokens of all ranks in one step.
std::int64_t tokens_per_step(const DataConfig& data);
/// The rows of the run's batches.
BatchSizes batch_sizes(const Config& config);

}  // namespace tessera
