#include "runtime/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "runtime/check.h"

namespace tessera {
namespace {

std::string reason_of(int code) {
  return std::generic_category().message(code);
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path)
    // O_NONBLOCK: a named pipe without a writer is refused below, not waited for.
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_.number() < 0) fail("cannot open {}: {}", path.string(), reason_of(errno));
  struct stat status {};
  const bool known = ::fstat(descriptor_.number(), &status) == 0;
  check(known, "cannot read {}: {}", path.string(), reason_of(errno));
  check(S_ISREG(status.st_mode), "cannot read {}: it is not a regular file", path.string());
  size_ = status.st_size;
}

void InputFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(descriptor_.number(), bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read {}: {}", path_.string(), reason_of(errno));
    check(got > 0, "{} ends at byte {}, but had {} bytes when it was opened; leave it as it is",
          path_.string(), offset, size_);
    offset += got;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace tessera
