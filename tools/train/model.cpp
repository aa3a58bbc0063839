#include "tools/train/model.h"

#include "autograd/freeze.h"
#include "models/gpt2.h"
#include "models/hugging_face.h"
#include "runtime/check.h"
#include "tools/data/manifest.h"

namespace tessera {
namespace {

/// The preset, or the folder to start from, with what the configuration says beside it. A
/// pretrained model's sizes can be repeated but not changed.
Gpt2Config sizes_of(const ModelConfig& config, std::int64_t vocab_size) {
  const bool pretrained = !config.init_from.empty();
  Gpt2Config sizes = pretrained ? read_gpt2_config(config.init_from) : gpt2_preset(config.preset);
  if (!pretrained && vocab_size > 0) sizes.vocab_size = vocab_size;
  const auto set = [&](std::string_view key, std::int64_t& size, std::int64_t configured) {
    if (configured == 0) return;
    check(!pretrained || configured == size,
          "{} is {}, but the model in {} has {}; leave the key out", key, configured,
          config.init_from.string(), size);
    size = configured;
  };
  set("model.layers", sizes.layers, config.layers);
  set("model.heads", sizes.heads, config.heads);
  set("model.width", sizes.width, config.width);
  set("model.context", sizes.context, config.context);
  set("model.vocab_size", sizes.vocab_size, config.vocab_size);
  sizes.dropout = config.dropout;
  return sizes;
}

}  // namespace

std::int64_t vocabulary_of(const std::filesystem::path& token_file) {
  const std::filesystem::path folder = token_file.parent_path();
  if (!std::filesystem::exists(folder / Manifest::kFileName)) return 0;
  return read_manifest(folder).vocab_size;
}

std::unique_ptr<LanguageModel> make_model(const Config& config, std::int64_t vocab_size) {
  auto model = std::make_unique<Gpt2>(sizes_of(config.model, vocab_size));
  check(model->vocab_size() >= vocab_size,
        "vocabulary mismatch: the data has token ids up to {}, but the model knows {} tokens",
        vocab_size - 1, model->vocab_size());
  check(config.data.sequence_length <= model->context_length(),
        "data.sequence_length {} is longer than the model's context of {}; shorten it or raise "
        "model.context",
        config.data.sequence_length, model->context_length());
  freeze(*model, config.model.frozen);
  return model;
}

}  // namespace tessera
