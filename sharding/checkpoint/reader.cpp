#include "sharding/checkpoint/reader.h"

#include <algorithm>
#include <cstring>

#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/json.h"

namespace tessera {
namespace {

constexpr std::int64_t kBlock = CheckpointManifest::kBlockBytes;
/// As many tensors as a message names.
constexpr std::size_t kMostNames = 3;

/// Bytes [begin, end) of a file that a block covers.
ElementRange bytes_of_block(const CheckpointFile& file, std::int64_t block) {
  return {block * kBlock, std::min(file.bytes, (block + 1) * kBlock)};
}

}  // namespace

CheckpointReader::CheckpointReader(const std::filesystem::path& folder)
    : folder_(folder), manifest_(read_checkpoint_manifest(folder)) {}

const CheckpointTensor& CheckpointReader::tensor(const std::string& name) const {
  const auto found = manifest_.tensors.find(name);
  check(found != manifest_.tensors.end(), "{} has no tensor {}", folder_.string(), excerpt(name));
  return found->second;
}

void CheckpointReader::read(const std::string& name, std::int64_t first,
                            std::span<std::byte> bytes) {
  const CheckpointTensor& stored = tensor(name);
  const auto size = static_cast<std::int64_t>(size_of(stored.dtype));
  const ElementRange wanted = {first, first + std::ssize(bytes) / size};
  check(first >= 0 && wanted.end <= stored.shape.numel() && std::ssize(bytes) % size == 0,
        "{}: elements {} to {} of tensor {} were asked for; it has {}", folder_.string(), first,
        wanted.end, excerpt(name), stored.shape.numel());
  auto slice = std::upper_bound(
      stored.slices.begin(), stored.slices.end(), wanted.begin,
      [](std::int64_t element, const CheckpointSlice& s) { return element < s.elements.end; });
  for (std::int64_t at = wanted.begin; at < wanted.end; ++slice) {
    const std::int64_t end = std::min(wanted.end, slice->elements.end);
    read_file(slice->file, slice->offset + (at - slice->elements.begin) * size,
              bytes.subspan(static_cast<std::size_t>((at - wanted.begin) * size),
                            static_cast<std::size_t>((end - at) * size)));
    at = end;
  }
}

std::string CheckpointReader::text(const std::string& name) {
  check(manifest_.files.contains(name), "{} has no file {}", folder_.string(), excerpt(name));
  const std::int64_t bytes = file(name).size();  // checked before so much memory is taken
  std::string text(static_cast<std::size_t>(bytes), '\0');
  read_file(name, 0, std::as_writable_bytes(std::span(text)));
  return text;
}

void CheckpointReader::read_file(const std::string& name, std::int64_t offset,
                                 std::span<std::byte> bytes) {
  const CheckpointFile& described = manifest_.files.at(name);
  const std::int64_t end = offset + std::ssize(bytes);
  for (std::int64_t at = offset; at < end;) {
    const std::int64_t block = at / kBlock;
    const ElementRange range = bytes_of_block(described, block);
    const std::int64_t until = std::min(end, range.end);
    const auto into =
        bytes.subspan(static_cast<std::size_t>(at - offset), static_cast<std::size_t>(until - at));
    if (at == range.begin && until == range.end) {
      check(read_block(name, block, into), "{}", damage(name, block));
    } else {
      if (block_file_ != name || block_number_ != block) {
        block_number_ = -1;  // as long as the contents are in question
        block_.resize(static_cast<std::size_t>(range.count()));
        check(read_block(name, block, block_), "{}", damage(name, block));
        block_file_ = name;
        block_number_ = block;
      }
      std::memcpy(into.data(), block_.data() + (at - range.begin), into.size());
    }
    at = until;
  }
}

bool CheckpointReader::read_block(const std::string& name, std::int64_t block,
                                  std::span<std::byte> bytes) {
  file(name).read(block * kBlock, bytes);
  return crc32c(bytes) == manifest_.files.at(name).checksums[static_cast<std::size_t>(block)];
}

const InputFile& CheckpointReader::file(const std::string& name) {
  const auto known = files_.find(name);
  if (known != files_.end()) return known->second;
  const InputFile& opened = files_.try_emplace(name, folder_ / name).first->second;
  const std::int64_t expected = manifest_.files.at(name).bytes;
  if (opened.size() != expected) {
    const std::int64_t size = opened.size();
    files_.erase(name);
    fail("{} has {} bytes; the checkpoint was saved with {}", (folder_ / name).string(), size,
         expected);
  }
  return opened;
}

std::string CheckpointReader::damage(const std::string& name, std::int64_t block) const {
  const ElementRange range = bytes_of_block(manifest_.files.at(name), block);
  std::vector<std::string> hit;
  for (const auto& [tensor, stored] : manifest_.tensors) {
    for (const CheckpointSlice& slice : stored.slices) {
      const std::int64_t bytes =
          slice.elements.count() * static_cast<std::int64_t>(size_of(stored.dtype));
      const bool overlaps =
          slice.file == name && slice.offset < range.end && slice.offset + bytes > range.begin;
      if (overlaps) hit.push_back(excerpt(tensor));
    }
  }
  const std::size_t more = hit.size() - std::min(hit.size(), kMostNames);
  hit.resize(hit.size() - more);
  std::string text = fmt::format("{} is damaged: the checksum of bytes {} to {} is wrong",
                                 (folder_ / name).string(), range.begin, range.end);
  if (!hit.empty()) text += fmt::format("; they hold {}", fmt::join(hit, ", "));
  if (more > 0) text += fmt::format(" and {} more", more);
  return text;
}

std::vector<std::string> CheckpointReader::problems() {
  std::vector<std::string> found;
  std::vector<std::byte> bytes(static_cast<std::size_t>(kBlock));
  for (const auto& [name, described] : manifest_.files) {
    try {
      for (std::int64_t block = 0; block < std::ssize(described.checksums); ++block) {
        const ElementRange range = bytes_of_block(described, block);
        const auto into = std::span(bytes).first(static_cast<std::size_t>(range.count()));
        if (!read_block(name, block, into)) found.push_back(damage(name, block));
      }
      file(name);  // an empty file, too, must exist
    } catch (const Error& error) {
      found.emplace_back(error.what());
    }
  }
  return found;
}

}  // namespace tessera
