#include "tools/generate/model_tokenizer.h"

#include <fmt/format.h>

#include "models/hugging_face.h"
#include "models/tokenizers/tokenizer.h"
#include "runtime/error.h"
#include "tools/data/token_corpus.h"
#include "tools/train/resolve.h"

namespace tessera {

namespace fs = std::filesystem;

fs::path tokenizer_folder(const InferenceOptions& options, const fs::path& data) {
  const ModelFiles files = find_model(options.model, options.adapter);
  for (const fs::path& folder : {tokenizer_folder(files), data_folder_of(data)}) {
    if (!folder.empty() && Tokenizer::exists(folder)) return folder;
  }
  return {};
}

std::optional<std::int32_t> document_token_of(const InferenceOptions& options,
                                              const std::string& name, const fs::path& data,
                                              std::int64_t vocab_size) {
  try {
    return find_document_token(name, tokenizer_folder(options, data), vocab_size);
  } catch (const Error& error) {
    throw Error(fmt::format("the document token {}", error.what()));
  }
}

}  // namespace tessera
