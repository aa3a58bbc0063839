#include "tools/checkpoint/dcp_import.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "models/adapters.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/json.h"
#include "tools/checkpoint/dcp_folder.h"
#include "tools/checkpoint/dcp_names.h"
#include "tools/checkpoint/whole_checkpoint.h"
#include "tools/config/parse.h"
#include "tools/train/parameter_groups.h"
#include "tools/train/resume.h"
#include "tools/train/run_data.h"
#include "tools/train/run_state.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// How a folder names the tensors of a model.
struct FoundNames {
  DcpNames names = DcpNames::hf;
  /// The text before a weight's name, and before that of a weight's moments; none if there are none.
  std::string before_weight;
  std::optional<std::string> before_moment;
};

/// The text before `name` in a tensor's name that ends with it.
std::optional<std::string> text_before(const DcpFolder& folder, const std::string& name) {
  for (const auto& [stored, tensor] : folder.tensors()) {
    const bool whole_words = stored == name || stored.ends_with("." + name);
    if (whole_words) return stored.substr(0, stored.size() - name.size());
  }
  return std::nullopt;
}

/// Raises Error unless the folder has the first parameter.
FoundNames find_names(const DcpFolder& folder, const Parameter& first, const TensorNames& hf) {
  std::vector<std::string> tried;
  for (const DcpNames names : {DcpNames::hf, DcpNames::torchtitan}) {
    if (names == DcpNames::torchtitan && first.name() != "model.embed_tokens.weight") continue;
    tried.push_back(dcp_parts(first.name(), first.shape(), hf, names).front().name);
    const auto before = text_before(folder, tried.back());
    if (!before) continue;
    return {names, *before, text_before(folder, tried.back() + kDcpMoments[0].second)};
  }
  fail("{} has no tensor {}; is it a folder of another model?", folder.path().string(),
       fmt::join(tried, " or "));
}

/// The updates that PyTorch's optimizer has made.
std::int64_t updates_of(const DcpFolder& folder, const std::string& step) {
  const auto found = folder.tensors().find(step);
  check(found != folder.tensors().end() && found->second.dtype == DType::f32 &&
            found->second.shape.numel() == 1,
        "{} has no f32 number {}", folder.path().string(), step);
  float updates = 0.0f;
  std::memcpy(&updates, folder.read(step).data(), sizeof(updates));
  check(updates >= 0.0f && updates < 0x1p24f && updates == std::floor(updates),
        "{}: {} is {}; expected a whole number below 2^24", folder.path().string(), step, updates);
  return static_cast<std::int64_t>(updates);
}

/// A tensor of our checkpoint, and the tensors of the folder that have its elements; none: zeros.
struct Source {
  PartToWrite part;
  std::vector<DcpPart> stored;
};

class Importer {
 public:
  Importer(const DcpFolder& folder, const LanguageModel& model, const TensorNames& hf)
      : folder_(folder),
        head_size_(model.shape().head_size),
        hf_(hf),
        found_(find_names(folder, parameters_of(model).front(), hf)) {
    for (const Parameter& parameter : parameters_of(model)) add(parameter);
    check_all_used();
  }

  /// The tensor with the number of updates; none without moments.
  const std::optional<std::string>& step() const { return step_; }
  const std::vector<Source>& sources() const { return sources_; }
  /// The first words of the values that are not converted; "param_groups" for the optimizer's settings.
  std::set<std::string> left_out() const {
    std::set<std::string> words;
    for (const std::string& name : folder_.values()) {
      const bool settings = name.find(".param_groups") != std::string::npos;
      words.insert(settings ? "param_groups" : name.substr(0, name.find('.')));
    }
    return words;
  }

  std::vector<std::byte> bytes_of(const Source& source) const {
    std::vector<std::byte> all;
    for (const DcpPart& part : source.stored) {
      std::vector<std::byte> bytes = folder_.read(part.name);
      if (part.interleaved) {
        bytes = reordered(bytes, part.shape[0], head_size_, HeadOrder::ours);
      }
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    if (source.stored.empty()) {
      all.resize(static_cast<std::size_t>(source.part.count) * size_of(source.part.dtype));
    }
    return all;
  }

 private:
  void add(const Parameter& parameter) {
    const std::vector<DcpPart> parts =
        dcp_parts(parameter.name(), parameter.shape(), hf_, found_.names);
    add(parameter, "", parts, found_.before_weight, "");
    if (!parameter.trainable()) return;
    for (const auto& [ours, theirs] : kDcpMoments) {
      if (found_.before_moment) {
        if (!step_) step_ = *found_.before_moment + parts.front().name + ".step";
        add(parameter, ours, parts, *found_.before_moment, theirs);
      } else {
        sources_.push_back(
            {whole_part(parameter.name() + ours, DType::f32, parameter.shape()), {}});
      }
    }
  }

  /// The parts under longer names.
  void add(const Parameter& parameter, const std::string& ending, std::vector<DcpPart> parts,
           const std::string& before, const std::string& after) {
    std::optional<DType> dtype;
    for (DcpPart& part : parts) {
      part.name = before + part.name + after;
      used_.insert(part.name);
      const auto found = folder_.tensors().find(part.name);
      check(found != folder_.tensors().end(), "{} has no tensor {}", folder_.path().string(),
            part.name);
      const DcpTensor& tensor = found->second;
      check(tensor.shape == part.shape,
            "{}: {} has shape {}; the model of the configuration has {}", folder_.path().string(),
            part.name, to_string(tensor.shape), to_string(part.shape));
      check(is_floating(tensor.dtype) && tensor.dtype == dtype.value_or(tensor.dtype),
            "{}: {} is {}; expected one floating-point type for all parts of a parameter",
            folder_.path().string(), part.name, name_of(tensor.dtype));
      dtype = tensor.dtype;
    }
    sources_.push_back({whole_part(parameter.name() + ending, *dtype, parameter.shape()), parts});
  }

  /// Raises Error if a weight of the folder is no parameter: the configuration has another model.
  void check_all_used() const {
    for (const auto& [name, tensor] : folder_.tensors()) {
      const bool is_weight = name.starts_with(found_.before_weight) && name.ends_with(".weight") &&
                             !used_.contains(name);
      if (!is_weight) continue;
      const std::string stored = name.substr(found_.before_weight.size());
      check(hf_.is_not_a_parameter(stored), "{}: the model of the configuration has no tensor {}",
            folder_.path().string(), excerpt(stored));
    }
  }

  const DcpFolder& folder_;
  std::int64_t head_size_;
  TensorNames hf_;
  FoundNames found_;
  std::optional<std::string> step_;
  std::vector<Source> sources_;
  std::set<std::string> used_;
};

/// Raises Error if the run could not continue from weights and AdamW's moments.
void check_importable(const Config& config, const LanguageModel& model) {
  check_with_place(config, [&] {
    check(!has_adapters(model),
          "adapter.rank is {}, but a converted checkpoint has whole weights; set it to 0",
          config.adapter.rank);
    check(config.train.ema == 0.0,
          "train.ema is {}, but a converted checkpoint has no averages; set it to 0",
          config.train.ema);
    const ParameterGroups groups = parameter_groups(config.optimizer, model);
    for (const Parameter& parameter : parameters_of(model)) {
      check(groups.settings_of(parameter).name == OptimizerKind::adamw,
            "optimizer: {} is updated by {}, but a converted checkpoint has the moments of adamw",
            parameter.name(), enum_name(groups.settings_of(parameter).name));
    }
  });
}

}  // namespace

bool is_dcp_folder(const fs::path& path) {
  return fs::exists(path / kDcpMetadataFile);
}

std::vector<std::string> import_dcp(const fs::path& dcp, const Config& config,
                                    const fs::path& out) {
  RankContext context;
  const ContextGuard guard(context);
  check_with_place(config, [&] {
    check(!config.data.train.empty(),
          "data.train is not set: name the tokens that the run continues with");
  });
  const ResolvedConfig run = resolve(config);
  const RunData data(run);
  const auto model = make_model(run);
  check_importable(run.config, *model);
  const DcpFolder folder(dcp);
  const Importer importer(folder, *model, family_of(run.model).tensor_names);
  const std::int64_t updates = importer.step() ? updates_of(folder, *importer.step()) : 0;
  std::vector<PartToWrite> parts;
  for (const Source& source : importer.sources()) parts.push_back(source.part);
  std::vector<std::byte> bytes;
  const fs::path path = write_whole_checkpoint(
      out, {.step = updates, .state = new_state_text(updates, data.train.samples(), *model)}, parts,
      [&](std::size_t i) {
        bytes = importer.bytes_of(importer.sources()[i]);
        return std::span<const std::byte>(bytes);
      },
      {{kConfigFile, to_yaml(run.config)}, {kModelFile, model->config().dump(2) + "\n"}});
  std::vector<std::string> lines = {path.string(),
                                    "  the run begins with the first batch of data.train; learning "
                                    "rates are the configuration's"};
  if (!importer.step()) lines.emplace_back("  the folder has no moments of AdamW: they begin at 0");
  if (const auto words = importer.left_out(); !words.empty()) {
    lines.push_back(fmt::format("  left out: {}", fmt::join(words, ", ")));
  }
  return lines;
}

}  // namespace tessera
