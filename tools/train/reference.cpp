#include "tools/train/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "models/hugging_face.h"
#include "models/peft.h"
#include "runtime/check.h"
#include "runtime/hash.h"
#include "runtime/safetensors.h"
#include "sharding/comm/world.h"
#include "tools/config/kernel_options.h"
#include "tools/config/parse.h"
#include "tools/data/manifest.h"
#include "tools/train/lengths.h"
#include "tools/train/preferences.h"
#include "tools/train/resolve_ranks.h"
#include "tools/train/run_data.h"
#include "tools/train/session.h"
#include "tools/train/world_options.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTensor = "log_probabilities";

/// The paths of all pairs of a run, each once.
std::vector<fs::path> paths_of(const DataConfig& data) {
  std::vector<fs::path> paths;
  const auto add = [&](const fs::path& path) {
    if (!path.empty() && std::find(paths.begin(), paths.end(), path) == paths.end()) {
      paths.push_back(path);
    }
  };
  for (const TrainingSource& source : data.train.sources) add(source.path);
  add(data.val);
  for (const ValidationSource& source : data.validation) add(source.path);
  return paths;
}

std::string pairs_text(const RowSource& rows) {
  return fmt::format("{:016x}", rows.pairs_fingerprint());
}

}  // namespace

fs::path reference_file_of(const fs::path& tokens) {
  return token_files_of(tokens).front().replace_extension(".reference");
}

std::string model_fingerprint(const ResolvedConfig& run) {
  const Config& config = run.config;
  if (config.model.init_from.empty()) {
    Fnv1a hash;
    hash.add(make_model(run)->config().dump());
    return fmt::format("seed {} {:016x}", config.train.seed, hash.value());
  }
  std::string text = weights_fingerprint(config.model.init_from);
  if (!config.adapter.path.empty()) {
    const fs::path weights = adapter_folder(config.adapter.path) / "adapter_model.safetensors";
    text += fmt::format(" {:016x}", describe_file(weights, "").checksum);
  }
  return text;
}

std::vector<float> read_reference(const fs::path& path, const RowSource& rows,
                                  const std::string& model) {
  constexpr std::string_view remedy = "run tessera reference with the same configuration";
  check(fs::exists(path), "{} has no reference log-probabilities in {}; {}", rows.name(),
        path.string(), remedy);
  const SafetensorsFile file(path);
  const auto check_same = [&](const std::string& key, const std::string& expected) {
    const auto found = file.metadata().find(key);
    check(found != file.metadata().end() && found->second == expected,
          "{} is of {} with the fingerprint {}; this run has {}; {}", path.string(), key,
          found == file.metadata().end() ? "(none)" : found->second, expected, remedy);
  };
  check_same("model", model);
  check_same("pairs", pairs_text(rows));
  const Tensor tensor = file.tensor(kTensor);
  check(tensor.dtype() == DType::f32, "{}: {} is {}; expected f32", path.string(), kTensor,
        name_of(tensor.dtype()));
  const float* const values = tensor.data<float>();
  return {values, values + tensor.numel()};
}

std::vector<fs::path> write_references(const Config& config) {
  check_key(config, "train.objective", [&] {
    check(needs_reference(config.train.objective), "{} needs no reference",
          enum_name(config.train.objective));
  });
  const WorldOptions options = world_options(config);
  std::optional<ResolvedConfig> run;
  std::vector<fs::path> files;
  std::vector<RowSource> sources;
  check_once(options, [&] {
    run = resolve(with_batch_size(config, planned_ranks(options)));
    check_ranks(*run, planned_ranks(options));
    for (const fs::path& path : paths_of(run->config.data)) {
      sources.push_back(open_rows(path, *run, SampleOrder::sequential));
      files.push_back(reference_file_of(path));
    }
  });
  run_world(options, [&](Communicator& world) {
    choose_kernels(config);
    TrainingSession session(*run, world);
    for (std::size_t i = 0; i < files.size(); ++i) {
      const std::vector<float> values = session.answer_log_probabilities(sources[i]);
      if (world.rank() != 0) continue;
      const Tensor pairs = Tensor::empty_on_host({std::ssize(values) / 2, 2}, DType::f32);
      std::ranges::copy(values, pairs.data<float>());
      write_safetensors(files[i], {{kTensor, pairs}},
                        {{"model", model_fingerprint(*run)}, {"pairs", pairs_text(sources[i])}});
    }
  });
  return files;
}

}  // namespace tessera
