#include "tools/train/size_model.h"

#include <algorithm>

#include "models/hugging_face.h"
#include "models/tokenizers/tokenizer.h"
#include "runtime/check.h"
#include "runtime/text.h"
#include "tools/data/manifest.h"
#include "tools/data/token_corpus.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// Far above every use, and far below an overflow of the bytes of one tensor.
constexpr double kMostElements = 0x1p56;

/// The manifest next to the training tokens, or an empty path.
fs::path manifest_of(const DataConfig& data) {
  if (data.train.empty()) return {};
  const fs::path manifest = data_folder_of(data.train.first()) / Manifest::kFileName;
  return fs::exists(manifest) ? manifest : fs::path();
}

/// Sources of a mixture were encoded by one tokenizer, as far as the vocabularies can tell.
void check_one_vocabulary(const DataConfig& data, std::int64_t vocabulary) {
  if (vocabulary == 0) return;
  for (const TrainingSource& source : data.train.sources) {
    const fs::path folder = data_folder_of(source.path);
    if (!fs::exists(folder / Manifest::kFileName)) continue;
    const std::int64_t other = read_manifest(folder).vocab_size;
    check(
        other == vocabulary,
        "data.train: {} has a vocabulary of {} tokens, and {} one of {}; prepare all sources with "
        "one tokenizer",
        data.train.first().string(), vocabulary, source.path.string(), other);
  }
}

/// A preset's padding is no token of a smaller vocabulary.
void drop_missing_padding(Hyperparameters& model) {
  std::visit(
      [](auto& sizes) {
        if constexpr (requires { sizes.padding_id; }) {
          if (sizes.padding_id && *sizes.padding_id >= sizes.vocab_size) sizes.padding_id.reset();
        }
      },
      model);
}

/// Sets the vocabulary of a new model from its data, and says where every model's comes from.
std::string choose_vocabulary(Hyperparameters& model, const Config& config,
                              const fs::path& manifest, std::int64_t data_vocabulary) {
  if (!config.model.init_from.empty()) return "from " + config.model.init_from.string();
  if (config.model.vocab_size > 0) return "from model.vocab_size";
  if (data_vocabulary > 0) {
    std::visit([&](auto& sizes) { sizes.vocab_size = data_vocabulary; }, model);
    return "from " + manifest.string();
  }
  const std::string preset = "of preset " + config.model.preset;
  return config.data.train.empty() ? preset : preset + ", no manifest next to data.train";
}

/// A pretrained model's sizes may be repeated in the configuration but not changed.
Hyperparameters hyperparameters_of(const ModelConfig& config) {
  const bool pretrained = !config.init_from.empty();
  Hyperparameters result =
      pretrained ? read_hyperparameters(config.init_from) : model_preset(config.preset);
  const auto set = [&](std::string_view key, std::int64_t& size, std::int64_t configured) {
    if (configured == 0) return;
    check(!pretrained || configured == size,
          "{} is {}, but the model in {} has {}; leave the key out", key, configured,
          config.init_from.string(), size);
    size = configured;
  };
  std::visit(
      [&](auto& sizes) {
        set("model.layers", sizes.layers, config.layers);
        set("model.heads", sizes.heads, config.heads);
        set("model.width", sizes.width, config.width);
        set("model.context", sizes.context, config.context);
        set("model.vocab_size", sizes.vocab_size, config.vocab_size);
        if constexpr (requires { sizes.kv_heads; }) {
          set("model.kv_heads", sizes.kv_heads, config.kv_heads);
          set("model.head_size", sizes.head_size, config.head_size);
          set("model.mlp_width", sizes.mlp_width, config.mlp_width);
        }
        if constexpr (requires { sizes.experts; }) {
          set("model.experts", sizes.experts, config.experts);
          set("model.experts_per_token", sizes.experts_per_token, config.experts_per_token);
          set("model.expert_width", sizes.expert_width, config.expert_width);
        }
        if constexpr (requires { sizes.attention_chunk; }) {
          set("model.attention_chunk", sizes.attention_chunk, config.attention_chunk);
        }
        if constexpr (requires { sizes.rope; }) {
          sizes.rope.angles = config.rope_angles.value_or(sizes.rope.angles);
        } else if (config.rope_angles) {
          fail("model.rope_angles is {}, but {} has no rotary positions; leave the key out",
               enum_name(*config.rope_angles),
               pretrained ? config.init_from.string() : config.preset);
        }
        sizes.dropout = config.dropout;
      },
      result);
  return result;
}

/// Sizes that follow from others in some families may be repeated in the configuration but not
/// changed.
void check_derived_sizes(const TransformerShape& model, const ModelConfig& config) {
  const auto check_equal = [&](std::string_view key, std::int64_t size, std::int64_t configured) {
    check(configured == 0 || configured == size,
          "{} is {}, but preset {} with these sizes has {}; leave the key out", key, configured,
          config.preset, size);
  };
  check_equal("model.kv_heads", model.kv_heads, config.kv_heads);
  check_equal("model.head_size", model.head_size, config.head_size);
  check_equal("model.mlp_width", model.mlp_width, config.mlp_width);
  check_equal("model.experts", model.experts.count, config.experts);
  check_equal("model.experts_per_token", model.experts.per_token, config.experts_per_token);
  check_equal("model.expert_width", model.experts.width, config.expert_width);
  check_equal("model.attention_chunk", model.chunks.tokens, config.attention_chunk);
}

/// Bounds the products of sizes, before anything is computed from them.
void check_products(const TransformerShape& model, const DataConfig& data) {
  const auto tokens =
      static_cast<double>(data.batch_size) * static_cast<double>(data.sequence_length);
  const auto width = static_cast<double>(model.width);
  const auto vocabulary = static_cast<double>(model.vocab_size);
  const TransformerShape::Experts& experts = model.experts;
  const double parameters =
      12.0 * width * width * static_cast<double>(model.layers) +
      3.0 * width * static_cast<double>(experts.count * experts.width * experts.layers) +
      (vocabulary + static_cast<double>(model.context)) * width;
  check(parameters <= kMostElements,
        "model.layers {} of model.width {} and a vocabulary of {} are {:.0e} parameters: too many",
        model.layers, model.width, model.vocab_size, parameters);
  const double of_experts = static_cast<double>(experts.per_token) *
                            std::max(width, 2.0 * static_cast<double>(experts.width));
  const double activations = tokens * std::max({vocabulary, 4.0 * width, of_experts});
  check(activations <= kMostElements,
        "data.batch_size {} and data.sequence_length {} are too large: an activation of such a "
        "batch has {:.0e} elements",
        data.batch_size, data.sequence_length, activations);
}

/// The first token that two tokenizers spell differently; no value if they are the same.
std::optional<std::int32_t> first_difference(const Tokenizer& a, const Tokenizer& b) {
  const std::int64_t common = std::min(a.vocab_size(), b.vocab_size());
  for (std::int32_t token = 0; token < common; ++token) {
    if (a.spelling(token) != b.spelling(token)) return token;
  }
  if (a.vocab_size() == b.vocab_size()) return std::nullopt;
  return static_cast<std::int32_t>(common);
}

std::string spelling(const Tokenizer& tokenizer, std::int32_t token) {
  if (token >= tokenizer.vocab_size()) return "missing";
  return excerpt(tokenizer.spelling(token));
}

/// To a model that was trained with another tokenizer the data would be scrambled text.
void check_same_tokenizer(const fs::path& model, const fs::path& data) {
  if (!Tokenizer::exists(model) || !Tokenizer::exists(data)) return;
  const auto of_model = Tokenizer::load(model);
  const auto of_data = Tokenizer::load(data);
  const std::optional<std::int32_t> token = first_difference(*of_model, *of_data);
  if (!token) return;
  fail(
      "model.init_from: the tokenizers differ: {} has {} tokens, {} has {}, and token {} is {} in "
      "the first and {} in the second; prepare the data with the model's tokenizer",
      (model / Tokenizer::kFileName).string(), of_model->vocab_size(),
      (data / Tokenizer::kFileName).string(), of_data->vocab_size(), *token,
      spelling(*of_model, *token), spelling(*of_data, *token));
}

void check_model(const TransformerShape& model, const Config& config,
                 std::int64_t data_vocabulary) {
  check(model.vocab_size >= data_vocabulary,
        "vocabulary mismatch: the data has token ids up to {}, but the model has {} tokens; raise "
        "model.vocab_size",
        data_vocabulary - 1, model.vocab_size);
  check(config.data.sequence_length <= model.context,
        "data.sequence_length {} is longer than the model's context of {}; shorten it{}",
        config.data.sequence_length, model.context,
        config.model.init_from.empty() ? " or raise model.context" : "");
  check_products(model, config.data);
  if (!config.model.init_from.empty()) {
    check_same_tokenizer(model_folder(config.model.init_from),
                         data_folder_of(config.data.train.first()));
  }
}

}  // namespace

SizedModel size_model(const Config& config) {
  const fs::path manifest = manifest_of(config.data);
  const std::int64_t data_vocabulary =
      manifest.empty() ? 0 : read_manifest(manifest.parent_path()).vocab_size;
  check_one_vocabulary(config.data, data_vocabulary);
  Hyperparameters model = hyperparameters_of(config.model);
  std::string origin = choose_vocabulary(model, config, manifest, data_vocabulary);
  drop_missing_padding(model);
  check_config(model);
  const TransformerShape shape = shape_of(model);
  check_derived_sizes(shape, config.model);
  check_model(shape, config, data_vocabulary);
  return {.model = std::move(model), .vocabulary_origin = std::move(origin)};
}

}  // namespace tessera
