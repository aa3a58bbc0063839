// FileCalls: the system calls by which checkpoints change files.
//
// A test derives from FileCalls and makes the call of its choice fail, or write less than it was
// asked to. OutputFile and the functions below turn failures into Errors that name path and reason.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "runtime/descriptor.h"

namespace tessera {

/// Each call returns the system's result and sets errno. Several threads may call at once.
class FileCalls {
 public:
  virtual ~FileCalls() = default;
  /// Opens a new, empty file for writing. A file of this name is emptied.
  virtual int create(const char* path);
  virtual int make_folder(const char* path);
  virtual ssize_t write(int file, const void* bytes, std::size_t count);
  virtual int sync(int file);
  /// Later writes go to the disk past the page cache (O_DIRECT), or again through it.
  virtual int bypass_cache(int file, bool bypass);
  virtual int rename(const char* from, const char* to);
  /// Removes a folder and everything in it.
  virtual int remove_folder(const char* path);

  /// Those of the system, unchanged.
  static FileCalls& system();
};

/// A file that is written from its beginning to its end.
class OutputFile {
 public:
  /// Raises Error if the file cannot be created. `calls` must outlive it.
  OutputFile(FileCalls& calls, const std::filesystem::path& path);

  /// Later writes bypass the page cache, as far as the file system can. Then address, size and place
  /// in the file of each must be multiples of kDirectAlignment. A write that the system refuses goes
  /// through the cache, and so do all after it.
  void bypass_cache(bool bypass);
  static constexpr std::size_t kDirectAlignment = 4096;

  /// Raises Error unless all bytes were written.
  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Waits until the contents are on the disk.
  void sync();

 private:
  FileCalls& calls_;
  std::filesystem::path path_;
  Descriptor file_;
  bool bypasses_cache_ = false;
};

/// Writes a file and waits until its contents are on the disk.
void write_file(FileCalls& calls, const std::filesystem::path& path, std::string_view text);
/// Makes a folder unless it exists. Its parent must exist.
void make_folder(FileCalls& calls, const std::filesystem::path& path);
/// Waits until the names in a folder are on the disk. File systems without this operation are left
/// as they are.
void sync_folder(FileCalls& calls, const std::filesystem::path& path);
/// Renames a file or folder. `to` must lie in the same folder. Returns when the name is on the disk.
void rename_durably(FileCalls& calls, const std::filesystem::path& from,
                    const std::filesystem::path& to);
void remove_folder(FileCalls& calls, const std::filesystem::path& path);

}  // namespace tessera
