#include "tools/train/resolve.h"

#include <algorithm>
#include <bit>

#include "autograd/checkpointing.h"
#include "autograd/freeze.h"
#include "models/adapters.h"
#include "models/hugging_face.h"
#include "models/peft.h"
#include "models/routers.h"
#include "models/tokenizers/tokenizer.h"
#include "runtime/check.h"
#include "runtime/text.h"
#include "sharding/plan/bucket.h"
#include "sharding/plan/stages.h"
#include "tools/config/optimizer_groups.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/data/token_corpus.h"
#include "tools/train/parameter_groups.h"
#include "tools/train/preferences.h"
#include "tools/train/qk_clip.h"
#include "tools/train/resolve_ranks.h"
#include "tools/train/size_model.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

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
  if (!adapter.base) adapter.base = stored.base;
}

void resolve_adapter(AdapterConfig& adapter, const Config& config) {
  if (!adapter.path.empty()) {
    check_key(config, "adapter.path", [&] { take_options_of_files(adapter, config); });
  }
  if (adapter.rank == 0) {
    check(adapter.targets.empty(), "adapter.targets is '{}', but adapter.rank is 0: set the rank",
          adapter.targets);
    check(!adapter.base, "adapter.base is {}, but adapter.rank is 0: set the rank",
          enum_name(adapter.base.value_or(AdapterBase::bf16)));
    return;
  }
  const DType dtype = config.runtime.compute_dtype;
  check(
      adapter.base != AdapterBase::bf16 || dtype == DType::bf16,
      "adapter.base is bf16, but runtime.compute_dtype is {}, in which the base is held; leave the "
      "key out",
      name_of(dtype));
  check(config.model.frozen.empty(),
        "model.frozen is '{}', but with adapter.rank {} all of the model is frozen; leave the key "
        "out",
        config.model.frozen, adapter.rank);
  check(config.sharding.tensor_parallel == 1,
        "sharding.tensor_parallel is {}, but adapters are not cut; set it to 1, or adapter.rank "
        "to 0",
        config.sharding.tensor_parallel);
}

/// Tensor-parallel ranks cannot share out heads that are normalized together.
void check_tensor_cut(const Config& config, const Hyperparameters& model) {
  const auto* const llama = std::get_if<LlamaConfig>(&model);
  check(config.sharding.tensor_parallel == 1 || llama == nullptr || llama->kind != LlamaKind::olmo2,
        "sharding.tensor_parallel is {}, but olmo2 normalizes all heads together, so they are not "
        "cut; set it to 1",
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

/// An update in parts, under a forward pass, is elementwise work of the device.
void check_overlap(const Config& config) {
  if (!config.runtime.overlap_update) return;
  check(!config.runtime.graph,
        "a launch of a graph ends with its step's update; set runtime.graph=false");
  check(config.sharding.offload == Offload::none,
        "the host waits to update offloaded masters; set sharding.offload=none");
  for (const OptimizerGroup& group : optimizer_groups(config.optimizer)) {
    check(group.settings.name != OptimizerKind::muon,
          "muon exchanges the matrices of all units together; set runtime.overlap_update=false");
  }
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
    SizedModel sized = size_model(config);
    run.model = std::move(sized.model);
    run.vocabulary_origin = std::move(sized.vocabulary_origin);
    check_tensor_cut(config, run.model);
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
  check_key(config, "runtime.overlap_update", [&] { check_overlap(config); });
  check_objective(config);
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

bool masks_documents(const ResolvedConfig& run) {
  const RowKind rows = run.config.data.rows;
  return rows == RowKind::packed || compares_pairs(run.config.train.objective) ||
         (rows == RowKind::windows && run.document_token.has_value());
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
  check_key(run.config, "optimizer.qk_clip", [&] { check_qk_clip(run.config.optimizer, *model); });
  if (has_fp8_history(run.config.runtime)) {
    for (const Parameter& weight : adaptable_weights(*model)) weight.set_rounded();
  }
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

BatchSizes batch_sizes(const Config& config) {
  return {config.data.batch_size, config.train.batch_ramp};
}

}  // namespace tessera
