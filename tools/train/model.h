// The model that a configuration describes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "models/language_model.h"
#include "tools/config/config.h"

namespace tessera {

/// Tokens that the data may contain: what the manifest beside a token file says, or 0 without one.
std::int64_t vocabulary_of(const std::filesystem::path& token_file);

/// The model named in `config`, without memory for its parameters. `vocab_size` is that of the
/// data, 0 if unknown; the configuration may ask for more. Raises Error if the two do not fit.
std::unique_ptr<LanguageModel> make_model(const Config& config, std::int64_t vocab_size);

}  // namespace tessera
