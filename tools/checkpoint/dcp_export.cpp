#include "tools/checkpoint/dcp_export.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/registry.h"
#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/checkpoint/reader.h"
#include "tools/checkpoint/dcp_folder.h"
#include "tools/checkpoint/dcp_writer.h"
#include "tools/config/parse.h"
#include "tools/pickle/writer.h"
#include "tools/train/optimizer.h"
#include "tools/train/resolve.h"
#include "tools/train/resume.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The configuration of the run. Raises Error if the checkpoint has adapters alone.
Config config_of(CheckpointReader& reader) {
  Config config = parse_config(reader.text(kConfigFile), (reader.folder() / kConfigFile).string());
  check(config.adapter.rank == 0,
        "{} has an adapter; PyTorch's folders have whole models. tessera export --merge writes one",
        reader.folder().string());
  return config;
}

class Exporter {
 public:
  Exporter(CheckpointReader& reader, const fs::path& out, DcpNames names)
      : reader_(reader),
        names_(names),
        config_(config_of(reader)),
        family_(family_of(parse_json(reader.text(kModelFile)))),
        model_(make_model(family_.config_from(parse_json(reader.text(kModelFile))))),
        writer_(FileCalls::system(), out) {}

  void write() {
    const ParameterGroups groups = parameter_groups(config_.optimizer, *model_);
    const nlohmann::json state = parse_json(reader_.manifest().state);
    const auto updates = state.at("updates").get<std::int64_t>();
    for (const Parameter& parameter : parameters_of(*model_)) {
      add(parameter, "", [](const std::string& name) { return DcpPath{name}; });
      if (!reader_.manifest().tensors.contains(parameter.name() + kDcpMoments[0].first)) continue;
      for (const auto& [ours, theirs] : kDcpMoments) {
        add(parameter, ours, [&, ending = theirs](const std::string& name) {
          return DcpPath{"optimizer", "state." + name + ending};
        });
      }
      for (const DcpPart& part : parts_of(parameter)) {
        add_updates(part.name, updates);
        add_settings(part.name, groups.settings_of(parameter), groups.decays(parameter));
      }
    }
    if (names_ == DcpNames::torchtitan) {
      const std::int64_t tokens =
          batch_sizes(config_).first_row(state.at("batches")) * config_.data.sequence_length;
      writer_.add_value({"train_state", "step"}, pickled::whole(reader_.manifest().step));
      writer_.add_value({"train_state", "ntokens_seen"}, pickled::whole(tokens));
    } else if (model_->units().front()->at_both_ends()) {
      add(parameters_of(*model_).front(), "",
          [](const std::string&) { return DcpPath{"lm_head.weight"}; });
    }
    writer_.finish();
  }

 private:
  std::vector<DcpPart> parts_of(const Parameter& parameter) const {
    return dcp_parts(parameter.name(), parameter.shape(), family_.tensor_names, names_);
  }

  /// A tensor of the checkpoint, by the paths of its parts' names.
  template <typename PathOf>
  void add(const Parameter& parameter, const std::string& ending, const PathOf& path_of) {
    const std::string name = parameter.name() + ending;
    const CheckpointTensor& stored = reader_.tensor(name);
    check(stored.shape == parameter.shape(), "{}: {} has shape {}; the model has {}",
          reader_.folder().string(), name, to_string(stored.shape), to_string(parameter.shape()));
    std::int64_t first = 0;
    for (const DcpPart& part : parts_of(parameter)) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(part.shape.numel()) *
                                   size_of(stored.dtype));
      reader_.read(name, first, bytes);
      if (part.interleaved) {
        bytes = reordered(bytes, part.shape[0], model_->shape().head_size, HeadOrder::metas);
      }
      writer_.add_tensor(path_of(part.name), stored.dtype, part.shape, bytes);
      first += part.shape.numel();
    }
  }

  void add_updates(const std::string& name, std::int64_t updates) {
    const auto step = static_cast<float>(updates);
    writer_.add_tensor({"optimizer", "state." + name + ".step"}, DType::f32, Shape{},
                       std::as_bytes(std::span(&step, 1)));
  }

  /// The keys of a group of torch.optim.AdamW.
  void add_settings(const std::string& name, const OptimizerConfig& settings, bool decays) {
    using namespace pickled;
    const double rate =
        learning_rate_at(schedule_of(settings, config_.train.steps), reader_.manifest().step);
    const std::vector<std::pair<const char*, std::string>> values = {
        {"lr", real(rate)},
        {"initial_lr", real(settings.learning_rate)},
        {"betas", tuple({real(settings.beta1), real(settings.beta2)})},
        {"eps", real(settings.epsilon)},
        {"weight_decay", real(decays ? settings.weight_decay : 0.0)},
        {"decoupled_weight_decay", boolean(true)},
        {"amsgrad", boolean(false)},
        {"maximize", boolean(false)},
        {"foreach", none()},
        {"fused", none()},
        {"capturable", boolean(false)},
        {"differentiable", boolean(false)}};
    for (const auto& [key, value] : values) {
      writer_.add_value({"optimizer", fmt::format("param_groups.{}.{}", name, key)}, value);
    }
  }

  CheckpointReader& reader_;
  DcpNames names_;
  Config config_;
  const ModelFamily& family_;
  std::unique_ptr<LanguageModel> model_;
  DcpWriter writer_;
};

}  // namespace

std::vector<std::string> export_dcp(const fs::path& path, const fs::path& out, DcpNames names) {
  CheckpointReader reader(checkpoints_at(path).back().path);
  check(!fs::exists(out / kDcpMetadataFile), "{} has a checkpoint; choose another folder",
        out.string());
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    check(!name.ends_with(".momentum"),
          "{} has the tensor {}; of optimizers, folders of PyTorch have adamw's state",
          reader.folder().string(), name);
  }
  make_writable_directory(out);
  Exporter(reader, out, names).write();
  std::vector<std::string> lines = {
      out.string(), "  left out: the position in the data and the schedule of learning rates"};
  const bool averages =
      std::any_of(reader.manifest().tensors.begin(), reader.manifest().tensors.end(),
                  [](const auto& tensor) { return tensor.first.ends_with(".ema"); });
  if (averages) lines.back() += ", and the averages of train.ema";
  return lines;
}

}  // namespace tessera
