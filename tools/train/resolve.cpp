#include "tools/train/resolve.h"

#include <algorithm>
#include <bit>

#include "autograd/checkpointing.h"
#include "autograd/freeze.h"
#include "models/hugging_face.h"
#include "models/peft.h"
#include "models/routers.h"
#include "models/tokenizers/tokenizer.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/text.h"
#include "sharding/plan/bucket.h"
#include "sharding/plan/placement.h"
#include "sharding/plan/stages.h"
#include "tools/config/optimizer_groups.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/data/manifest.h"
#include "tools/data/token_corpus.h"
#include "tools/train/parameter_groups.h"

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
        "data.sequence_length {} is longer than the model's context of {}; shorten it or raise "
        "model.context",
        config.data.sequence_length, model.context);
  check_products(model, config.data);
  if (!config.model.init_from.empty()) {
    check_same_tokenizer(model_folder(config.model.init_from),
                         data_folder_of(config.data.train.first()));
  }
}

/// The balance that `auto` stands for.
Balance usual_balance(const ModelConfig& model, const AdapterConfig& adapter) {
  if (adapter.rank > 0) return Balance::none;
  if (model.init_from.empty()) return Balance::bias;
  return make_pretrained(model.init_from)->routers()->has_biases() ? Balance::bias : Balance::none;
}

/// A model without experts accepts no setting for them but the defaults.
void resolve_balance(MoeConfig& moe, const TransformerShape& model, const Config& config) {
  if (model.experts.layers > 0) {
    if (!moe.balance) moe.balance = usual_balance(config.model, config.adapter);
    check(config.adapter.rank == 0 || moe.balance != Balance::bias,
          "moe.balance is bias, but with adapter.rank {} the model is frozen, its routers' biases "
          "included; choose none, lagged or hf",
          config.adapter.rank);
    return;
  }
  const auto check_unused = [&](std::string_view key, bool unused, const auto& value) {
    check(unused, "{} is {}, but the model has no experts; leave the key out", key, value);
  };
  const Balance balance = moe.balance.value_or(Balance::none);
  check_unused("moe.balance", balance == Balance::none, enum_name(balance));
  check_unused("moe.z_loss", moe.z_loss == 0.0, moe.z_loss);
  check_unused("moe.force_balance", !moe.force_balance, moe.force_balance);
  moe.balance = Balance::none;
}

/// Sets the options of an adapter to start from. The configuration may repeat them but not change them.
void take_options_of_files(AdapterConfig& adapter, const Config& config) {
  const AdapterOptions stored = read_adapter(adapter.path).options;
  const auto set = [&](const char* key, auto& value, const auto& from) {
    check(!config.places.contains(key) || value == from,
          "{} is another than that of the adapter in {}; leave the key out", key,
          adapter.path.string());
    value = from;
  };
  set("adapter.rank", adapter.rank, stored.rank);
  set("adapter.alpha", adapter.alpha, stored.alpha);
  set("adapter.scaling", adapter.scaling, stored.scaling);
  set("adapter.targets", adapter.targets, stored.targets);
}

void resolve_adapter(AdapterConfig& adapter, const Config& config) {
  if (!adapter.path.empty()) {
    check_key(config, "adapter.path", [&] { take_options_of_files(adapter, config); });
  }
  if (adapter.rank == 0) {
    check(adapter.targets.empty(), "adapter.targets is '{}', but adapter.rank is 0: set the rank",
          adapter.targets);
    return;
  }
  check(config.model.frozen.empty(),
        "model.frozen is '{}', but with adapter.rank {} all of the model is frozen; leave the key "
        "out",
        config.model.frozen, adapter.rank);
  check(config.sharding.tensor_parallel == 1,
        "sharding.tensor_parallel is {}, but adapters are not cut; set it to 1, or adapter.rank "
        "to 0",
        config.sharding.tensor_parallel);
}

void check_elastic(const Config& config) {
  const std::int64_t elastic = config.train.elastic;
  if (elastic == 0) return;
  check(std::has_single_bit(static_cast<std::uint64_t>(elastic)), "{} is no power of two", elastic);
  check(config.data.accumulation_steps == 1,
        "{} takes the place of data.accumulation_steps, which is {}; leave that key out", elastic,
        config.data.accumulation_steps);
}

/// The ranks that share the rows of a batch.
std::string describe_ranks(const ResolvedConfig& run, int ranks) {
  const int sharing = batch_ranks(run.sharding, ranks);
  if (sharing == ranks) return fmt::format("the number of ranks, {} (runtime.ranks)", ranks);
  return fmt::format("the {} ranks that share its rows ({} in all, runtime.ranks)", sharing, ranks);
}

/// Only adamw rounds at random.
void check_kept_dtypes(const Config& config) {
  const auto check_one = [&](std::string_view key, DType dtype, const OptimizerGroup& group) {
    check_key(config, key, [&] {
      check(dtype == DType::f32 || group.settings.name == OptimizerKind::adamw,
            "{} is for adamw, which rounds at random; {} keeps f32", name_of(dtype),
            enum_name(group.settings.name));
    });
  };
  for (const OptimizerGroup& group : optimizer_groups(config.optimizer)) {
    check_one("optimizer.master_dtype", group.settings.master_dtype, group);
    check_one("optimizer.state_dtype", group.settings.state_dtype, group);
  }
}

}  // namespace

ResolvedConfig resolve(const Config& config) {
  ResolvedConfig run{.config = config};
  check_key(config, "data.rows_per_rank", [&] {
    check(config.data.rows_per_rank == 0,
          "only training, plans and benchmarks know it; set data.batch_size");
  });
  check_with_place(config, [&] {
    const fs::path manifest = manifest_of(config.data);
    const std::int64_t data_vocabulary =
        manifest.empty() ? 0 : read_manifest(manifest.parent_path()).vocab_size;
    check_one_vocabulary(config.data, data_vocabulary);
    run.model = hyperparameters_of(config.model);
    run.vocabulary_origin = choose_vocabulary(run.model, config, manifest, data_vocabulary);
    drop_missing_padding(run.model);
    check_config(run.model);
    check_derived_sizes(shape_of(run.model), config.model);
    check_model(shape_of(run.model), config, data_vocabulary);
    resolve_adapter(run.config.adapter, config);
    resolve_balance(run.config.moe, shape_of(run.model), run.config);
  });
  check_key(config, "data.document_token", [&] {
    run.document_token =
        find_document_token(config.data.document_token, data_folder_of(config.data.train.first()),
                            shape_of(run.model).vocab_size);
  });
  check_key(config, "train.elastic", [&] { check_elastic(config); });
  check_kept_dtypes(config);
  check_key(config, "sharding.check_replicas", [&] {
    check(config.sharding.check_replicas == 0 || has_replicas(config.sharding),
          "{} is for ddp and hsdp; with {} no two ranks hold the same part",
          config.sharding.check_replicas, name_of(config.sharding.strategy));
  });
  const TransformerShape shape = shape_of(run.model);
  ModelConfig& sizes = run.config.model;
  sizes.layers = shape.layers;
  sizes.heads = shape.heads;
  sizes.width = shape.width;
  sizes.context = shape.context;
  sizes.vocab_size = shape.vocab_size;
  run.sharding = sharding_options(config);
  describe_to_sharding(run);
  return run;
}

void describe_to_sharding(ResolvedConfig& run) {
  const TransformerShape shape = shape_of(run.model);
  const auto model = make_model(run.model);
  check_key(run.config, "adapter.targets", [&] { add_adapters(*model, run.config.adapter); });
  check_key(run.config, "optimizer.groups",
            [&] { run.sharding.matrix_dtype = matrix_dtypes(run.config.optimizer, *model); });
  run.sharding.counters = shape.experts.layers * shape.experts.count;
  run.sharding.experts_per_token = static_cast<int>(shape.experts.per_token);
  run.sharding.stage_counters = run.config.moe.balance == Balance::hf ? shape.experts.count : 0;
  run.sharding.activations = tokens_per_step(run.config.data) * shape.width;
  auto& [elements, forward_passes] = run.sharding.keys_and_values;
  elements = tokens_per_step(run.config.data) * 2 * shape.kv_heads * shape.head_size;
  forward_passes.clear();
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const bool again = run.config.sharding.activation_checkpointing.recomputes(layer);
    forward_passes.push_back(again ? 2 : 1);
  }
  const bool is_gpt2 = std::holds_alternative<Gpt2Config>(run.model);
  const bool is_llama4 = std::holds_alternative<Llama4Config>(run.model);
  // Rows that have travelled to the experts are kept.
  const bool dispatches_again =
      run.sharding.expert_parallel == 1 || shape.experts.weighed == WeighedInput::gate_up;
  run.sharding.tensor_traffic = {
      .rows = tokens_per_step(run.config.data),
      .width = shape.width,
      .forward_passes = forward_passes,
      .attention_readers = is_llama4 ? 3 : 1,
      .experts = {.per_token = shape.experts.per_token,
                  .shared = shape.experts.shared_width > 0,
                  .dispatches_again = dispatches_again},
      .norm_vectors = is_gpt2 ? 2 : 1,
      .head_norms = shape.qk_norm ? 2 * shape.head_size : 0,
      .keys = {.pieces = shape.kv_heads, .uses = shape.heads / shape.kv_heads},
      .head_size = shape.head_size,
      .learns_positions = is_gpt2,
      .dtype = run.config.runtime.compute_dtype};
}

std::optional<std::int32_t> find_document_token(const std::string& name, const fs::path& tokenizer,
                                                std::int64_t vocab_size) {
  if (name.empty()) return std::nullopt;
  if (name.find_first_not_of("0123456789") == name.npos) {
    const std::int64_t number = name.size() > 9 ? vocab_size : std::stoll(name);
    check(number < vocab_size, "{}; the model's tokens are 0 to {}", name, vocab_size - 1);
    return static_cast<std::int32_t>(number);
  }
  check(Tokenizer::exists(tokenizer), "{}, and {} has no {} to look it up; give the token's number",
        excerpt(name), tokenizer.string(), Tokenizer::kFileName);
  const std::vector<std::int32_t> tokens = Tokenizer::load(tokenizer)->encode(name);
  check(tokens.size() == 1, "{}, which is {} tokens; expected one", excerpt(name), tokens.size());
  check(tokens.front() < vocab_size, "{}, which is token {}; the model's tokens are 0 to {}",
        excerpt(name), tokens.front(), vocab_size - 1);
  return tokens.front();
}

ResolvedConfig on_ranks(ResolvedConfig run, int ranks) {
  const std::int64_t elastic = run.config.train.elastic;
  if (elastic == 0) return run;
  const int sharing = batch_ranks(run.sharding, ranks);
  check_key(run.config, "train.elastic", [&] {
    check(elastic % sharing == 0, "{} is no multiple of {}", elastic, describe_ranks(run, ranks));
  });
  run.config.data.accumulation_steps = elastic / sharing;
  run.sharding.micro_batches = static_cast<int>(elastic / sharing);
  return run;
}

bool masks_documents(const ResolvedConfig& run) {
  const RowKind rows = run.config.data.rows;
  return rows == RowKind::packed || (rows == RowKind::windows && run.document_token.has_value());
}

namespace {

/// The pieces that rows are cut into (autograd/context_axis.h); and a balance that sees whole rows.
void check_cut_rows(const ResolvedConfig& run) {
  const ShardingOptions& sharding = run.sharding;
  const int parts = std::max(sharding.context_parallel, sharding.grid);
  const std::int64_t length = run.config.data.sequence_length;
  check(parts <= 1 || length % (2 * parts) == 0,
        "data.sequence_length {} is no multiple of {}, twice sharding.{} {}: rows are cut into so "
        "many pieces",
        length, 2 * parts, sharding.grid > 0 ? "grid" : "context_parallel", parts);
  check(sharding.context_parallel == 1 || run.config.moe.balance != Balance::hf,
        "moe.balance hf counts whole rows, and sharding.context_parallel {} cuts them; choose bias "
        "or lagged",
        sharding.context_parallel);
}

}  // namespace

void check_sharding(const ResolvedConfig& run, int ranks) {
  const ResolvedConfig here = on_ranks(run, ranks);
  check_with_place(run.config, [&] {
    check_options(here.sharding, {.ranks = ranks});
    check_cut_rows(here);
  });
}

std::string uneven_batch(const ResolvedConfig& run, int ranks) {
  const DataConfig& data = run.config.data;
  if (const std::int64_t elastic = run.config.train.elastic; elastic > 0) {
    if (data.batch_size % elastic == 0) return "";
    return fmt::format("data.batch_size {} is not a multiple of train.elastic {}", data.batch_size,
                       elastic);
  }
  if (data.batch_size % (data.accumulation_steps * batch_ranks(run.sharding, ranks)) == 0)
    return "";
  return fmt::format("data.batch_size {} is not a multiple of data.accumulation_steps {} times {}",
                     data.batch_size, data.accumulation_steps, describe_ranks(run, ranks));
}

void check_ranks(const ResolvedConfig& run, int ranks) {
  check_sharding(run, ranks);
  check_with_place(run.config, [&] {
    const std::string problem = uneven_batch(run, ranks);
    check(problem.empty(), "{}", problem);
  });
}

namespace {

RouterTraining router_training(const MoeConfig& moe) {
  return {.balance = moe.balance.value(),
          .bias_rate = moe.bias_rate,
          .loss_coefficient = moe.loss_coefficient,
          .z_loss = moe.z_loss,
          .force_balance = moe.force_balance};
}

}  // namespace

std::unique_ptr<LanguageModel> make_model(const ResolvedConfig& run) {
  auto model = make_model(run.model);
  check_key(run.config, "model.frozen", [&] { freeze(*model, run.config.model.frozen); });
  check_key(run.config, "adapter.targets", [&] { add_adapters(*model, run.config.adapter); });
  check_key(run.config, "optimizer.groups", [&] { freeze_groups(run.config.optimizer, *model); });
  if (Routers* const routers = model->routers()) {
    if (!run.config.model.init_from.empty()) load_router_biases(run.config.model.init_from, *model);
    routers->set_training(router_training(run.config.moe));
  }
  return model;
}

namespace {

void check_patterns(const std::vector<PlacementRule>& rules,
                    const std::vector<Parameter>& parameters) {
  for (const PlacementRule& rule : rules) {
    const bool matches =
        std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
          return matches_pattern(rule.pattern, parameter.name());
        });
    check(matches, "the pattern '{}' matches no parameter of this model; names are like '{}'",
          rule.pattern, parameters.back().name());
  }
}

}  // namespace

void check_model_keys(const ResolvedConfig& run) {
  const auto model = make_model(run);
  check_key(run.config, "sharding.activation_checkpointing", [&] {
    set_checkpointing(model->units(), run.config.sharding.activation_checkpointing);
  });
  check_key(run.config, "sharding.buckets",
            [&] { make_buckets(model->units(), run.sharding.buckets); });
  check_key(run.config, "sharding.pipeline_stages", [&] {
    cut_stages(model->units(), run.sharding.pipeline_stages,
               run.sharding.pipeline_parallel * run.sharding.pipeline_chunks,
               run.sharding.experts_per_token);
  });
  check_key(run.config, "sharding.rules",
            [&] { check_patterns(run.sharding.rules, parameters_of(*model)); });
}

std::int64_t parameter_count(const LanguageModel& model) {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_of(model)) count += parameter.numel();
  return count;
}

std::string describe_model(const ResolvedConfig& run) {
  const auto model = make_model(run);
  std::int64_t trained = 0;
  for (const Parameter& parameter : parameters_of(*model)) {
    if (parameter.in_adapter()) trained += parameter.numel();
  }
  const std::string adapter = trained == 0 ? ""
                                           : fmt::format(", {:.2f}M of them in adapters",
                                                         static_cast<double>(trained) * 1e-6);
  return fmt::format("{:.2f}M parameters{} ({} layers x {}, vocabulary {} {})",
                     static_cast<double>(parameter_count(*model)) * 1e-6, adapter,
                     model->shape().layers, model->shape().width, model->shape().vocab_size,
                     run.vocabulary_origin);
}

std::int64_t tokens_per_step(const DataConfig& data) {
  return data.batch_size * data.sequence_length;
}

}  // namespace tessera
