#include "sharding/checkpoint/writer.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/safetensors.h"

namespace tessera {

void ChecksummedFile::append(std::span<const std::byte> bytes,
                             const std::function<void()>& after_block) {
  while (!bytes.empty()) {
    const std::int64_t in_block = description_.bytes % CheckpointManifest::kBlockBytes;
    const std::int64_t count =
        std::min<std::int64_t>(std::ssize(bytes), CheckpointManifest::kBlockBytes - in_block);
    const auto piece = bytes.first(static_cast<std::size_t>(count));
    file_.append(piece);
    block_.add(piece);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    description_.bytes += count;
    if (description_.bytes % CheckpointManifest::kBlockBytes == 0) {
      description_.checksums.push_back(block_.value());
      block_ = {};
    }
    after_block();
  }
}

CheckpointFile ChecksummedFile::finish() {
  if (description_.bytes % CheckpointManifest::kBlockBytes != 0) {
    description_.checksums.push_back(block_.value());
  }
  file_.sync();
  return description_;
}

std::string rank_file_name(int rank) {
  return fmt::format("rank-{:05}.safetensors", rank);
}

CheckpointManifest write_rank_file(
    FileCalls& calls, const std::filesystem::path& folder, int rank,
    const std::vector<PartToWrite>& parts,
    const std::function<std::span<const std::byte>(std::size_t part)>& bytes_of,
    const std::function<void()>& after_block) {
  TensorInfos infos;
  for (const PartToWrite& part : parts) {
    if (part.count == 0) continue;
    const bool whole = part.count == part.shape.numel();
    infos.push_back({part.name, {part.dtype, whole ? part.shape : Shape{part.count}}});
  }
  const std::string name = rank_file_name(rank);
  const std::string header = safetensors_header(infos);
  CheckpointManifest manifest;
  ChecksummedFile file(calls, folder / name);
  file.append(std::as_bytes(std::span(header)));
  auto offset = static_cast<std::int64_t>(header.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const PartToWrite& part = parts[i];
    CheckpointTensor& tensor = manifest.tensors[part.name];
    tensor = {.dtype = part.dtype, .shape = part.shape};
    if (part.count == 0) continue;
    const auto size = static_cast<std::int64_t>(size_of(part.dtype));
    part.elements.for_each_run(part.count, [&](std::int64_t element, std::int64_t before,
                                               std::int64_t count) {
      tensor.slices.push_back(
          {.file = name, .offset = offset + before * size, .elements = {element, element + count}});
    });
    const std::span<const std::byte> bytes = bytes_of(i);
    check(std::ssize(bytes) == part.count * size,
          "checkpoint: part '{}' has {} bytes for {} elements of {}", part.name, bytes.size(),
          part.count, name_of(part.dtype));
    file.append(bytes, after_block);
    offset += std::ssize(bytes);
  }
  manifest.files[name] = file.finish();
  return manifest;
}

void add_text_file(FileCalls& calls, const std::filesystem::path& folder, const std::string& name,
                   std::string_view text, CheckpointManifest& manifest) {
  ChecksummedFile file(calls, folder / name);
  file.append(std::as_bytes(std::span(text.data(), text.size())));
  manifest.files[name] = file.finish();
}

}  // namespace tessera
