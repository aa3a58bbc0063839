// ByteSource: bytes that come in order, as a file has them, an archive unpacks them or a program prints them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/input_file.h"

namespace tessera {

/// The bytes of a file that are read at a time.
inline constexpr std::size_t kBlockBytes = std::size_t{1} << 18;

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills a part of `bytes`, from its beginning, and returns its size: 0 only at the end. Raises Error
  /// with the path if the file cannot be read to its end.
  virtual std::size_t read(std::span<std::byte> bytes) = 0;
  /// The bytes of the file that have been read, for progress.
  virtual std::int64_t consumed() const = 0;
};

/// The bytes of a file as they are.
class FileSource : public ByteSource {
 public:
  explicit FileSource(const std::filesystem::path& path) : file_(path) {}

  std::size_t read(std::span<std::byte> bytes) override;
  std::int64_t consumed() const override { return consumed_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  InputFile file_;
  std::int64_t consumed_ = 0;
};

/// The contents of a .gz file, with one member or several, and of a .zst file, with one frame or several.
/// Memory: a block, and an archive's window: 32 KiB for gzip, up to 128 MiB for zstd. Errors say whether
/// the archive is truncated, damaged or no archive.
std::unique_ptr<ByteSource> make_gzip_source(const std::filesystem::path& path);
std::unique_ptr<ByteSource> make_zstd_source(const std::filesystem::path& path);

}  // namespace tessera
