// Writing one rank's part of a checkpoint.
//
// The file is in the format safetensors, so other programs read it. A slice that is a whole tensor
// has the tensor's shape there, any other is flat.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/crc32c.h"
#include "runtime/elements.h"
#include "runtime/large_file.h"
#include "sharding/checkpoint/manifest.h"

namespace tessera {

/// A file with the checksums of its blocks.
class ChecksummedFile {
 public:
  ChecksummedFile(FileCalls& calls, const std::filesystem::path& path) : file_(calls, path) {}

  /// Calls after_block() after each of the blocks that it writes.
  void append(
      std::span<const std::byte> bytes, const std::function<void()>& after_block = [] {});
  /// Waits until the contents are on the disk.
  CheckpointFile finish();

 private:
  LargeFile file_;
  CheckpointFile description_;
  Crc32c block_;
};

/// The part of a tensor that a rank writes; it may be empty.
struct PartToWrite {
  std::string name;
  DType dtype = DType::f32;
  /// The whole tensor's.
  Shape shape;
  /// The elements of the part, which has `count` of them.
  Elements elements = {};
  std::int64_t count = 0;
};

/// "rank-00000.safetensors".
std::string rank_file_name(int rank);

/// Writes the file of a rank into `folder`. bytes_of(i) has the elements of part i; the parts are
/// asked for in order, once each, and empty ones not at all. after_block() is called after each block
/// of at most CheckpointManifest::kBlockBytes. Returns a manifest of this file alone.
CheckpointManifest write_rank_file(
    FileCalls& calls, const std::filesystem::path& folder, int rank,
    const std::vector<PartToWrite>& parts,
    const std::function<std::span<const std::byte>(std::size_t part)>& bytes_of,
    const std::function<void()>& after_block = [] {});

/// Writes a small file into `folder` and adds it to the manifest.
void add_text_file(FileCalls& calls, const std::filesystem::path& folder, const std::string& name,
                   std::string_view text, CheckpointManifest& manifest);

}  // namespace tessera
