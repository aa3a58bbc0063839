#include "tools/generate/inference.h"

#include <fmt/format.h>

#include <memory>

#include "models/hugging_face.h"
#include "models/tokenizers/tokenizer.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/out_of_memory.h"
#include "sharding/comm/world.h"
#include "sharding/strategy/strategy.h"
#include "tools/config/parse.h"

namespace tessera {

namespace fs = std::filesystem;

fs::path tokenizer_folder(const ModelFiles& files) {
  return Tokenizer::exists(files.model) ? files.model : files.own();
}

std::optional<Config> config_of_run(const fs::path& folder) {
  const fs::path own = fs::weakly_canonical(folder), file = own.parent_path() / "config.yaml";
  if (own.filename() != "model" || !fs::exists(file)) return std::nullopt;
  return load_config(file, {});
}

ShardingOptions inference_sharding(const fs::path& folder, DType dtype, int ranks) {
  ShardingOptions options{.strategy = ranks == 1 ? StrategyKind::single : StrategyKind::fsdp,
                          .compute_dtype = dtype};
  const std::optional<Config> run = config_of_run(folder);
  if (!run) return options;
  // The run's other settings are about training.
  const ShardingConfig& sharding = run->sharding;
  options.grid = static_cast<int>(sharding.grid);  // the bits of training
  if (ranks == 1 || sharding.strategy == StrategyKind::single) return options;
  options.strategy = sharding.strategy;
  options.flatten_parameters = sharding.flatten_parameters;
  const auto experts = static_cast<int>(sharding.expert_parallel);
  if (ranks % experts == 0) options.expert_parallel = experts;
  const auto tensors = static_cast<int>(sharding.tensor_parallel);
  if (ranks % (experts * tensors) == 0) options.tensor_parallel = tensors;
  return options;
}

void with_inference_advice(const InferenceOptions& options, std::vector<std::string> less_work,
                           const std::function<void()>& body) {
  if (options.dtype == DType::f32) less_work.emplace_back("--dtype bf16");
  less_work.emplace_back("more ranks, each with memory of its own (--ranks)");
  with_advice(
      [&](const OutOfMemory&) { return fmt::format("choose {}", fmt::join(less_work, " or ")); },
      body);
}

void run_model(const InferenceOptions& options, const std::function<void(LanguageModel&)>& body) {
  const std::optional<Device> device = parse_device(options.device);
  check(device.has_value(), "--device: expected auto, cpu, cuda or cuda:N, got '{}'",
        options.device);
  const WorldOptions world = {
      .ranks = options.ranks, .device = *device, .threads = options.threads};
  ModelFiles files;
  AdapterOptions adapter;
  ShardingOptions sharding;
  check_once(world, [&] {
    files = find_model(options.model, options.adapter);
    if (!files.adapter.empty()) adapter = read_adapter(files.adapter).options;
    sharding = inference_sharding(files.own(), options.dtype, planned_ranks(world));
  });
  run_world(world, [&](Communicator& communicator) {
    const NoGradient no_gradient;
    std::unique_ptr<LanguageModel> model;
    std::unique_ptr<Strategy> strategy;
    with_inference_advice(options, /*less_work=*/{}, [&] {
      model = make_pretrained(files.model);
      add_adapters(*model, adapter);
      // No gradients, no optimizer, and masters in the compute dtype.
      for (const Parameter& parameter : parameters_of(*model)) parameter.set_trainable(false);
      strategy = make_strategy(model->units(), sharding, /*seed=*/0, &communicator);
      strategy->write_masters([&] {
        load_parameters(files.model, strategy->shards());
        if (!files.adapter.empty()) load_adapter(files.adapter, strategy->shards());
      });
    });
    body(*model);
  });
}

}  // namespace tessera
