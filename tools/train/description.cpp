#include "tools/train/description.h"

#include <fmt/format.h>

#include "kernels/attention/tensor_core_heads.h"
#include "runtime/context.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/prediction.h"
#include "tools/train/optimizer.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json predicted_bytes(const ResolvedConfig& run, const LanguageModel& model, const Plan& plan) {
  const Prediction all = predict(plan, 0, state_bytes(run.config, model));
  const bool knows_traffic = run.sharding.expert_parallel == 1;
  return {{"parameters", all.parameters.most},
          {"gradients", all.gradients.most},
          {"optimizer", all.optimizer.most},
          {"communication", all.slots.most},
          {"bytes_sent", knows_traffic ? Json(all.bytes_sent.most) : Json()}};
}

}  // namespace

Json describe_run(const ResolvedConfig& run, TrainingSession& session, const Communicator& world) {
  const Config& config = run.config;
  return {{"model", describe_model(run)},
          {"parameters", parameter_count(session.model())},
          {"strategy", variant_name(run.sharding)},
          {"mesh", to_string(session.strategy().plan().mesh)},
          {"ranks", world.size()},
          {"device", to_string(context().device())},
          {"dtype", name_of(config.runtime.compute_dtype)},
          {"threads", context().threads().size()},
          {"steps", config.train.steps},
          {"tokens_per_step", tokens_per_step(config.data)},
          {"predicted", predicted_bytes(run, session.model(), session.strategy().plan())}};
}

std::vector<std::string> speed_notes(const ResolvedConfig& run, const Device& device) {
  std::vector<std::string> notes;
  const TransformerShape shape = shape_of(run.model);
  const AttentionBackend backend = run.config.kernels.attention;
  const bool hides_keys =
      masks_documents(run) ||
      (shape.chunks.layers > 0 && run.config.data.sequence_length > shape.chunks.tokens) ||
      (shape.windows.layers > 0 && run.config.data.sequence_length > shape.windows.tokens);
  if (backend == AttentionBackend::cudnn && hides_keys) {
    notes.emplace_back(
        "cuDNN's attention knows no documents, chunks and windows: there tessera's kernels run");
  }
  if (!device.is_cpu() &&
      misses_tensor_cores(backend, run.sharding.compute_dtype, shape.head_size)) {
    notes.push_back(
        fmt::format("attention is slow for heads of {} channels: tensor cores take multiples of 8 "
                    "from {} to {}",
                    shape.head_size, kLeastTensorCoreHead, kMostTensorCoreHead));
  }
  return notes;
}

}  // namespace tessera
