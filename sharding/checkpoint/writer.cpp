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
    const std::int64_t count = part.elements.count();
    if (count == 0) continue;
    const bool whole = count == part.shape.numel();
    infos.push_back({part.name, {part.dtype, whole ? part.shape : Shape{count}}});
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
    if (part.elements.count() == 0) continue;
    tensor.slices.push_back({.file = name, .offset = offset, .elements = part.elements});
    const std::span<const std::byte> bytes = bytes_of(i);
    check(bytes.size() == static_cast<std::size_t>(part.elements.count()) * size_of(part.dtype),
          "checkpoint: part '{}' has {} bytes for {} elements of {}", part.name, bytes.size(),
          part.elements.count(), name_of(part.dtype));
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
