#include "tools/checkpoint/convert.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "models/hugging_face.h"
#include "models/peft.h"
#include "models/registry.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/checkpoint/reader.h"
#include "sharding/strategy/strategy.h"
#include "tools/checkpoint/whole_checkpoint.h"
#include "tools/config/parse.h"
#include "tools/train/resume.h"
#include "tools/train/run_state.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The files that are no rank's.
std::vector<std::string> small_files(const CheckpointManifest& manifest) {
  std::vector<std::string> names;
  for (const auto& [name, file] : manifest.files) {
    if (!name.starts_with("rank-")) names.push_back(name);
  }
  return names;
}

}  // namespace

fs::path consolidate_checkpoint(const fs::path& path, const fs::path& out) {
  CheckpointReader reader(checkpoints_at(path).back().path);
  const CheckpointManifest& manifest = reader.manifest();
  std::vector<PartToWrite> parts;
  for (const auto& [name, tensor] : manifest.tensors) {
    parts.push_back(whole_part(name, tensor.dtype, tensor.shape));
  }
  std::map<std::string, std::string> texts;
  for (const std::string& name : small_files(manifest)) texts[name] = reader.text(name);
  std::vector<std::byte> bytes;
  return write_whole_checkpoint(
      out, {.step = manifest.step, .healthy = manifest.healthy, .state = manifest.state}, parts,
      [&](std::size_t i) {
        const auto elements = static_cast<std::size_t>(parts[i].count);
        bytes.resize(elements * size_of(parts[i].dtype));
        reader.read(parts[i].name, 0, bytes);
        return std::span<const std::byte>(bytes);
      },
      texts);
}

void export_checkpoint(const fs::path& path, const fs::path& out, bool ema) {
  CheckpointReader reader(checkpoints_at(path).back().path);
  check(!fs::exists(out / kModelFile), "{} holds a model; choose another folder", out.string());
  RankContext context;
  const ContextGuard guard(context);
  const nlohmann::json config = parse_json(reader.text(kModelFile));
  const auto model = make_model(family_of(config).config_from(config));
  const Config run =
      parse_config(reader.text(kConfigFile), (reader.folder() / kConfigFile).string());
  add_adapters(*model, run.adapter);
  const auto strategy = make_single_strategy(model->units(), 0);
  strategy->write_masters([&] {
    ema ? read_averages(reader, *model, strategy->shards())
        : read_parameters(reader, *model, strategy->shards());
  });
  if (Routers* const routers = model->routers()) restore_routers(reader.manifest(), *routers);
  if (run.adapter.rank > 0) {
    save_adapter(out, *model, run.adapter, run.model.init_from, *strategy);
  } else {
    save_pretrained(out, *model, *strategy);
  }
  const std::set<std::string> own = {kConfigFile, kModelFile};
  for (const std::string& name : small_files(reader.manifest())) {
    if (!own.contains(name)) write_file_atomically(out / name, reader.text(name));
  }
}

}  // namespace tessera
