#include "runtime/large_file.h"

#include <algorithm>
#include <cstring>

namespace tessera {

LargeFile::LargeFile(FileCalls& calls, const std::filesystem::path& path)
    : file_(calls, path),
      buffer_(static_cast<std::byte*>(::operator new(kBufferBytes, kAlignment))) {
  file_.bypass_cache(true);
}

void LargeFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kBufferBytes - filled_);
    std::memcpy(buffer_.get() + filled_, bytes.data(), count);
    filled_ += count;
    bytes = bytes.subspan(count);
    if (filled_ < kBufferBytes) return;
    file_.append(std::span(buffer_.get(), filled_));
    filled_ = 0;
  }
}

void LargeFile::sync() {
  file_.bypass_cache(false);  // the rest is not aligned
  file_.append(std::span(buffer_.get(), filled_));
  filled_ = 0;
  file_.sync();
}

}  // namespace tessera
