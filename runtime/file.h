// Files: mapped for reading, replaced atomically for writing.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// A file mapped read-only. Share it with shared_ptr: tensors that are views of it keep it alive.
class MappedFile {
 public:
  /// Raises Error with the path and the system's reason. An empty file maps to an empty span.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Lets `write` fill a temporary file in the same folder, flushes it to disk and renames it to
/// `path`. A reader sees the old file or the complete new one. If a step fails or `write` throws,
/// the temporary is removed, `path` is untouched, and the Error names path and reason.
void write_file_atomically(const std::filesystem::path& path,
                           const std::function<void(std::ostream&)>& write);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// The whole file as text. Raises Error with path and reason.
std::string read_text_file(const std::filesystem::path& path);

/// Creates `directory` and its parents and checks that files can be created in it. Removes temporary
/// files that killed processes have left there. Raises Error.
void make_writable_directory(const std::filesystem::path& directory);

}  // namespace tessera
