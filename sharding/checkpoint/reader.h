// Reading a checkpoint: any elements of any tensor, verified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/input_file.h"
#include "sharding/checkpoint/manifest.h"

namespace tessera {

/// An open checkpoint. Each rank opens its own.
class CheckpointReader {
 public:
  /// Raises Error if the manifest is missing or damaged.
  explicit CheckpointReader(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const CheckpointManifest& manifest() const { return manifest_; }
  /// Raises Error if the checkpoint has no tensor of this name.
  const CheckpointTensor& tensor(const std::string& name) const;

  /// Fills `bytes` with elements of a tensor, from flat element `first` on, in the stored dtype. Reads
  /// just the blocks that hold them. Raises Error, with the file and the bytes, if a block is damaged.
  void read(const std::string& name, std::int64_t first, std::span<std::byte> bytes);
  /// The contents of one of the small files.
  std::string text(const std::string& file);

  /// Reads every byte. Returns a line for each damaged block and each missing file; it names the
  /// tensors that are hit.
  std::vector<std::string> problems();

 private:
  /// Fills `bytes` from byte `offset` of a file on.
  void read_file(const std::string& name, std::int64_t offset, std::span<std::byte> bytes);
  /// Reads a whole block into `bytes`. Returns whether its checksum is right.
  bool read_block(const std::string& name, std::int64_t block, std::span<std::byte> bytes);
  const InputFile& file(const std::string& name);
  std::string damage(const std::string& name, std::int64_t block) const;

  std::filesystem::path folder_;
  CheckpointManifest manifest_;
  std::map<std::string, InputFile> files_;
  /// The last block that was read in part.
  std::vector<std::byte> block_;
  std::string block_file_;
  std::int64_t block_number_ = -1;
};

}  // namespace tessera
