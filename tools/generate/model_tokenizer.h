// The tokenizer of a model or of its data, and its document token.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tools/generate/inference.h"

namespace tessera {

/// The folder of the model's tokenizer, or else of the data's; empty without one. `data` names token files
/// as data.train does.
std::filesystem::path tokenizer_folder(const InferenceOptions& options,
                                       const std::filesystem::path& data);

/// The token that a value of data.document_token names in that tokenizer; no value if the name is empty.
/// Raises Error if the vocabulary has no such token.
std::optional<std::int32_t> document_token_of(const InferenceOptions& options,
                                              const std::string& name,
                                              const std::filesystem::path& data,
                                              std::int64_t vocab_size);

}  // namespace tessera
