#include "tools/checkpoint/whole_checkpoint.h"

#include "runtime/check.h"
#include "runtime/file.h"
#include "sharding/checkpoint/folder.h"

namespace tessera {

PartToWrite whole_part(const std::string& name, DType dtype, const Shape& shape) {
  return {.name = name, .dtype = dtype, .shape = shape, .count = shape.numel()};
}

std::filesystem::path write_whole_checkpoint(
    const std::filesystem::path& run, CheckpointManifest manifest,
    const std::vector<PartToWrite>& parts,
    const std::function<std::span<const std::byte>(std::size_t part)>& bytes_of,
    const std::map<std::string, std::string>& texts) {
  std::filesystem::path target = checkpoint_path(run, manifest.step);
  check(!std::filesystem::exists(target), "{} exists; choose another folder", target.string());
  make_writable_directory(run);
  FileCalls& calls = FileCalls::system();
  const std::filesystem::path folder = unfinished_checkpoint_path(run, manifest.step);
  make_folder(calls, folder);
  manifest.add(write_rank_file(calls, folder, 0, parts, bytes_of));
  for (const auto& [name, text] : texts) add_text_file(calls, folder, name, text, manifest);
  write_file(calls, folder / CheckpointManifest::kFileName, to_json(manifest));
  publish_checkpoint(calls, run, manifest.step);
  return target;
}

}  // namespace tessera
