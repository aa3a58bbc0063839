// LargeFile: a file of gigabytes, written past the page cache.
//
// The system's cache would copy every byte, and push out the pages of other files. Both cost time of
// the cores, which compute meanwhile.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <new>
#include <span>

#include "runtime/file_calls.h"

namespace tessera {

/// A file that is written from its beginning to its end. File systems that have no way past the cache
/// are written through it.
class LargeFile {
 public:
  /// Raises Error if the file cannot be created. `calls` must outlive it.
  LargeFile(FileCalls& calls, const std::filesystem::path& path);

  /// Raises Error unless all bytes were written, but for those that wait for a full buffer.
  void append(std::span<const std::byte> bytes);
  /// Writes the rest and waits until the contents are on the disk. The last call.
  void sync();

  /// Bytes of a write.
  static constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

 private:
  static constexpr std::align_val_t kAlignment{OutputFile::kDirectAlignment};
  struct Delete {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
  };

  OutputFile file_;
  std::unique_ptr<std::byte, Delete> buffer_;
  std::size_t filled_ = 0;
};

}  // namespace tessera
