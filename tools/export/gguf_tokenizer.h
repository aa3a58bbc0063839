// A tokenizer.json as the keys of a GGUF file.
#pragma once

#include <cstdint>
#include <filesystem>

#include "tools/export/gguf_file.h"

namespace tessera {

/// The keys "tokenizer...." for the tokenizer of a model folder with `vocab_size` tokens: spellings,
/// kinds and merges of byte-level BPE, the ids of config.json's special tokens, and the chat template.
/// Ids that no token has are named "[PAD7]".
///
/// Raises Error if the folder has no tokenizer.json, if it is not byte-level BPE, if llama.cpp has no
/// name for its way to cut text (it has for those of GPT-2, Llama 3 and Qwen), or if it has more
/// tokens than the model. A tokenizer of characters is one of bytes if all of them are ASCII.
GgufKeys tokenizer_keys(const std::filesystem::path& folder, std::int64_t vocab_size);

}  // namespace tessera
