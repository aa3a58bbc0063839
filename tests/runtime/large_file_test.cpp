// LargeFile: contents, the alignment that O_DIRECT asks for, and file systems without it.
#include "runtime/large_file.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/file.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

constexpr std::size_t kBuffer = LargeFile::kBufferBytes;

std::string text_of(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
  return text;
}

/// Writes the text in pieces of `piece` bytes and returns what the file has.
std::string written(FileCalls& calls, const std::string& text, std::size_t piece) {
  const test::TemporaryDirectory directory;
  const auto path = directory / "large";
  {
    LargeFile file(calls, path);
    for (std::size_t begin = 0; begin < text.size(); begin += piece) {
      file.append(
          std::as_bytes(std::span(text).subspan(begin, std::min(piece, text.size() - begin))));
    }
    file.sync();
  }
  return read_text_file(path);
}

/// Behaves like a file system with O_DIRECT: refuses a write that is not aligned.
class StrictFiles final : public FileCalls {
 public:
  int bypass_cache(int, bool bypass) override {
    bypass_ = bypass;
    return 0;
  }
  ssize_t write(int file, const void* bytes, std::size_t count) override {
    const auto odd =
        (reinterpret_cast<std::uintptr_t>(bytes) | count | place_) % OutputFile::kDirectAlignment;
    if (bypass_ && odd != 0) {
      ++refused;
      errno = EINVAL;
      return -1;
    }
    // One write of the file is cut short.
    if (++writes == short_write && count > 1) count = count / 2 - 1;
    direct += bypass_ ? 1 : 0;
    const ssize_t done = FileCalls::write(file, bytes, count);
    place_ += static_cast<std::size_t>(done);
    return done;
  }

  int short_write = 0;
  int writes = 0;
  int direct = 0;
  int refused = 0;

 private:
  bool bypass_ = false;
  std::size_t place_ = 0;
};

class WithoutDirectWrites final : public FileCalls {
 public:
  explicit WithoutDirectWrites(bool at_the_write) : at_the_write_(at_the_write) {}
  int bypass_cache(int, bool bypass) override {
    bypass_ = bypass && at_the_write_;
    if (!bypass || at_the_write_) return 0;
    errno = EINVAL;
    return -1;
  }
  ssize_t write(int file, const void* bytes, std::size_t count) override {
    if (!bypass_) return FileCalls::write(file, bytes, count);
    errno = EINVAL;
    return -1;
  }

 private:
  const bool at_the_write_;
  bool bypass_ = false;
};

}  // namespace

TEST_CASE("a large file has the bytes that were appended") {
  const std::size_t size =
      GENERATE(0u, 1u, 4095u, 4096u, 4097u, kBuffer - 1, kBuffer, kBuffer + 1, 3 * kBuffer + 12345);
  const std::size_t piece = GENERATE(1000u, 4096u, kBuffer + 7, 10 * kBuffer);
  const std::string text = text_of(size);
  CHECK(written(FileCalls::system(), text, piece) == text);
}

TEST_CASE("writes past the cache are aligned, and only the rest goes through it") {
  StrictFiles calls;
  const std::string text = text_of(3 * kBuffer + 12345);
  CHECK(written(calls, text, 99999) == text);
  CHECK(calls.direct == 3);
  CHECK(calls.writes == 4);
  CHECK(calls.refused == 0);
}

TEST_CASE("after a short write the rest goes through the cache") {
  StrictFiles calls;
  calls.short_write = 2;
  const std::string text = text_of(3 * kBuffer + 12345);
  CHECK(written(calls, text, 99999) == text);
  CHECK(calls.direct == 2);
  CHECK(calls.refused == 0);
}

TEST_CASE("a file system without direct writes gets the same file") {
  WithoutDirectWrites calls(GENERATE(false, true));
  const std::string text = text_of(2 * kBuffer + 5);
  CHECK(written(calls, text, 100000) == text);
}

}  // namespace tessera
