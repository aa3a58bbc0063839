#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <vector>

#include "runtime/check.h"
#include "tools/data/byte_source.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The file's blocks, of which an archive's reader takes some bytes at a time.
class Blocks {
 public:
  explicit Blocks(const fs::path& path) : file_(path), block_(kBlockBytes) {}

  /// The bytes that are not taken yet; empty at the file's end.
  std::span<const std::byte> rest() {
    if (begin_ == end_) {
      begin_ = 0;
      end_ = file_.read(block_);
    }
    return std::span(block_).subspan(begin_, end_ - begin_);
  }
  void take(std::size_t bytes) { begin_ += bytes; }

  std::int64_t taken() const { return file_.consumed() - static_cast<std::int64_t>(end_ - begin_); }
  std::string name() const { return file_.path().string(); }

 private:
  FileSource file_;
  std::vector<std::byte> block_;
  std::size_t begin_ = 0, end_ = 0;
};

[[noreturn]] void fail_truncated(const Blocks& blocks) {
  fail(
      "{}: truncated: the archive is incomplete at the file's end, byte {}; download or compress "
      "it again",
      blocks.name(), blocks.taken());
}

[[noreturn]] void fail_damaged(const Blocks& blocks, const char* kind, const std::string& reason) {
  fail("{}: no {} archive, or damaged, before byte {}: {}; download or compress it again",
       blocks.name(), kind, blocks.taken(), reason);
}

class GzipSource : public ByteSource {
 public:
  explicit GzipSource(const fs::path& path) : blocks_(path) {
    constexpr int kGzipOnly = 16;
    check(inflateInit2(&stream_, kGzipOnly + MAX_WBITS) == Z_OK, "no memory to unpack {}",
          path.string());
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::size_t read(std::span<std::byte> bytes) override {
    const auto room = static_cast<uInt>(std::min(bytes.size(), kBlockBytes));
    stream_.next_out = reinterpret_cast<Bytef*>(bytes.data());
    stream_.avail_out = room;
    while (stream_.avail_out == room) {
      const std::span<const std::byte> rest = blocks_.rest();
      if (rest.empty() && between_members_) return 0;
      if (rest.empty()) fail_truncated(blocks_);
      if (between_members_) inflateReset(&stream_);
      stream_.next_in = reinterpret_cast<z_const Bytef*>(const_cast<std::byte*>(rest.data()));
      stream_.avail_in = static_cast<uInt>(rest.size());
      const int status = inflate(&stream_, Z_NO_FLUSH);
      blocks_.take(rest.size() - stream_.avail_in);
      if (status != Z_OK && status != Z_STREAM_END) {
        fail_damaged(blocks_, "gzip", stream_.msg != nullptr ? stream_.msg : "unexpected data");
      }
      between_members_ = status == Z_STREAM_END;
    }
    return room - stream_.avail_out;
  }
  std::int64_t consumed() const override { return blocks_.taken(); }

 private:
  Blocks blocks_;
  z_stream stream_ = {};
  bool between_members_ = false;
};

class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(const fs::path& path) : blocks_(path), stream_(ZSTD_createDStream()) {
    check(stream_ != nullptr, "no memory to unpack {}", path.string());
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  std::size_t read(std::span<std::byte> bytes) override {
    ZSTD_outBuffer out = {bytes.data(), bytes.size(), 0};
    while (out.pos == 0) {
      // The stream may hold unpacked bytes when the file has ended.
      const std::span<const std::byte> rest = blocks_.rest();
      if (rest.empty() && between_frames_) return 0;
      ZSTD_inBuffer in = {rest.data(), rest.size(), 0};
      const std::size_t status = ZSTD_decompressStream(stream_, &out, &in);
      blocks_.take(in.pos);
      if (ZSTD_isError(status) != 0) fail_unpacking(status);
      between_frames_ = status == 0;
      if (rest.empty() && out.pos == 0 && !between_frames_) fail_truncated(blocks_);
    }
    return out.pos;
  }
  std::int64_t consumed() const override { return blocks_.taken(); }

 private:
  [[noreturn]] void fail_unpacking(std::size_t status) const {
    check(ZSTD_getErrorCode(status) != ZSTD_error_frameParameter_windowTooLarge,
          "{}: the archive's window is larger than 128 MiB; unpack it with zstd -d --long=31, or "
          "compress it again without --long",
          blocks_.name());
    fail_damaged(blocks_, "zstd", ZSTD_getErrorName(status));
  }

  Blocks blocks_;
  ZSTD_DStream* stream_;
  bool between_frames_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> make_gzip_source(const fs::path& path) {
  return std::make_unique<GzipSource>(path);
}

std::unique_ptr<ByteSource> make_zstd_source(const fs::path& path) {
  return std::make_unique<ZstdSource>(path);
}

}  // namespace tessera
