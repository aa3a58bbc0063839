// A file that is read piece by piece and may change while it is open.
//
// A memory-mapped file (runtime/file.h) that becomes shorter ends the process with SIGBUS. Here the
// same is an Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "runtime/descriptor.h"

namespace tessera {

class InputFile {
 public:
  /// Raises Error with the path unless it is a regular file that can be read.
  explicit InputFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  /// Bytes in the file when it was opened.
  std::int64_t size() const { return size_; }

  /// Fills `bytes` from byte `offset` on. Several threads may read at once. Raises Error if the file
  /// ends before.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  Descriptor descriptor_;
  std::int64_t size_ = 0;
};

}  // namespace tessera
