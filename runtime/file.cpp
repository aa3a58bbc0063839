#include "runtime/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <regex>
#include <system_error>
#include <utility>

#include "runtime/check.h"
#include "runtime/descriptor.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The system's text for an errno value. (strerror is not thread-safe.)
std::string reason_of(int code) {
  return std::generic_category().message(code);
}

int open_for_reading(const fs::path& path, int flags = 0) {
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (number < 0) fail("cannot open {}: {}", path.string(), reason_of(errno));
  return number;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// A new file in `folder` that disappears at the end of the scope unless it was renamed. It is locked
/// while it exists. The file of a killed process is no longer locked, so a later process may remove
/// it.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& folder) : descriptor_(create(folder, path_)) {}
  ~TemporaryFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  /// Removes the files in `folder` that killed processes have left.
  static void remove_stale(const fs::path& folder) {
    const std::regex form(R"(\.tessera-\d+-\d+\.tmp)");
    std::error_code code;
    for (fs::directory_iterator entry(folder, code), end; !code && entry != end;
         entry.increment(code)) {
      if (!std::regex_match(entry->path().filename().string(), form)) continue;
      const Descriptor file(::open(entry->path().c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
      const bool stale = file.number() >= 0 && ::flock(file.number(), LOCK_EX | LOCK_NB) == 0;
      if (stale) ::unlink(entry->path().c_str());
    }
  }

  const fs::path& path() const { return path_; }

  /// Waits until the contents are on the disk. Without this, a power failure after the rename could
  /// leave an empty file under the final name. Returns 0 or the errno.
  int flush() const { return ::fsync(descriptor_.number()) == 0 ? 0 : errno; }

  /// Returns 0 or the errno.
  int rename_to(const fs::path& target) {
    if (::rename(path_.c_str(), target.c_str()) != 0) return errno;
    path_.clear();
    return 0;
  }

 private:
  // O_EXCL makes the name ours alone: no other thread, process or machine that shares the folder
  // has it, and no file of a killed run is overwritten.
  static int create(const fs::path& folder, fs::path& path) {
    for (int attempt = 0;; ++attempt) {
      path = folder / fmt::format(".tessera-{}-{}.tmp", ::getpid(), attempt);
      const int number = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (number < 0 && errno == EEXIST) continue;
      if (number < 0) fail("cannot write to folder {}: {}", folder.string(), reason_of(errno));
      // Another process may have removed the file before it was locked. Then the next name is taken.
      // On file systems without locks no file counts as stale.
      struct stat status {};
      const bool locked = ::flock(number, LOCK_EX) == 0;
      if (!locked || (::fstat(number, &status) == 0 && status.st_nlink > 0)) return number;
      ::close(number);
    }
  }

  fs::path path_;
  Descriptor descriptor_;
};

// Raises std::exception when `write` throws or the stream reports an error.
void fill(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  errno = 0;
  std::ofstream stream(path, std::ios::binary);
  if (stream) write(stream);
  stream.close();
  if (!stream) fail("{}", errno != 0 ? reason_of(errno) : "the output stream failed");
}

// Makes the new name itself durable. File systems without this operation answer EINVAL.
void flush_folder(const fs::path& folder) {
  const Descriptor descriptor(open_for_reading(folder, O_DIRECTORY));
  if (::fsync(descriptor.number()) != 0 && errno != EINVAL) {
    fail("cannot flush folder {}: {}", folder.string(), reason_of(errno));
  }
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  // O_NONBLOCK: a named pipe without a writer is refused below, not waited for.
  const Descriptor descriptor(open_for_reading(path, O_NONBLOCK));
  struct stat status {};
  if (::fstat(descriptor.number(), &status) != 0) {
    fail("cannot read {}: {}", path.string(), reason_of(errno));
  }
  check(S_ISREG(status.st_mode), "cannot map {}: not a regular file", path.string());
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.number(), 0);
  if (address == MAP_FAILED) fail("cannot map {}: {}", path.string(), reason_of(errno));
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void write_file_atomically(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  const fs::path folder = folder_of(path);
  try {
    TemporaryFile temporary(folder);
    fill(temporary.path(), write);
    if (const int code = temporary.flush(); code != 0) fail("{}", reason_of(code));
    if (const int code = temporary.rename_to(path); code != 0) fail("{}", reason_of(code));
    flush_folder(folder);
  } catch (const std::exception& error) {
    fail("cannot write {}: {}", path.string(), error.what());
  }
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  write_file_atomically(path, [&](std::ostream& stream) {
    stream.write(text.data(), static_cast<std::streamsize>(text.size()));
  });
}

std::string read_text_file(const fs::path& path) {
  const Descriptor descriptor(open_for_reading(path));
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = ::read(descriptor.number(), buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      fail("cannot read {}: {}", path.string(), reason_of(errno));
    }
  }
}

void make_writable_directory(const fs::path& directory) {
  std::error_code code;
  fs::create_directories(directory, code);
  check(!code, "cannot create folder {}: {}", directory.string(), code.message());
  TemporaryFile::remove_stale(directory);
  // Permission bits do not show everything: root may write anywhere but to a read-only disk.
  const TemporaryFile probe(directory);
}

}  // namespace tessera
