#include "tools/checkpoint/convert.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "models/hugging_face.h"
#include "models/registry.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/checkpoint/reader.h"
#include "sharding/checkpoint/writer.h"
#include "sharding/strategy/strategy.h"
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
  const fs::path target = checkpoint_path(out, manifest.step);
  check(!fs::exists(target), "{} exists; choose another folder", target.string());
  make_writable_directory(out);
  FileCalls& calls = FileCalls::system();
  const fs::path folder = unfinished_checkpoint_path(out, manifest.step);
  make_folder(calls, folder);
  std::vector<PartToWrite> parts;
  for (const auto& [name, tensor] : manifest.tensors) {
    parts.push_back({.name = name,
                     .dtype = tensor.dtype,
                     .shape = tensor.shape,
                     .count = tensor.shape.numel()});
  }
  std::vector<std::byte> bytes;
  CheckpointManifest whole = {
      .step = manifest.step, .healthy = manifest.healthy, .state = manifest.state};
  whole.add(write_rank_file(calls, folder, 0, parts, [&](std::size_t i) {
    const auto elements = static_cast<std::size_t>(parts[i].count);
    bytes.resize(elements * size_of(parts[i].dtype));
    reader.read(parts[i].name, 0, bytes);
    return std::span<const std::byte>(bytes);
  }));
  for (const std::string& name : small_files(manifest)) {
    add_text_file(calls, folder, name, reader.text(name), whole);
  }
  write_file(calls, folder / CheckpointManifest::kFileName, to_json(whole));
  publish_checkpoint(calls, out, manifest.step);
  return target;
}

void export_checkpoint(const fs::path& path, const fs::path& out, bool ema) {
  CheckpointReader reader(checkpoints_at(path).back().path);
  check(!fs::exists(out / kModelFile), "{} holds a model; choose another folder", out.string());
  RankContext context;
  const ContextGuard guard(context);
  const nlohmann::json config = parse_json(reader.text(kModelFile));
  const auto model = make_model(family_of(config).config_from(config));
  const auto strategy = make_single_strategy(model->units(), 0);
  strategy->write_masters([&] {
    ema ? read_averages(reader, strategy->shards()) : read_parameters(reader, strategy->shards());
  });
  if (Routers* const routers = model->routers()) restore_routers(reader.manifest(), *routers);
  save_pretrained(out, *model, *strategy);
  const std::set<std::string> own = {kConfigFile, kModelFile};
  for (const std::string& name : small_files(reader.manifest())) {
    if (!own.contains(name)) write_file_atomically(out / name, reader.text(name));
  }
}

}  // namespace tessera
