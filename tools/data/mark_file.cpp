#include "tools/data/mark_file.h"

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/hash.h"

namespace tessera {
namespace {

using Header = std::array<std::int32_t, MarkFile::kHeaderBytes / 4>;
constexpr std::int32_t kMagic = 20261122, kVersion = 1;
constexpr std::int64_t kPiece = 1 << 20;

}  // namespace

std::filesystem::path mark_file_of(const std::filesystem::path& token_file) {
  std::filesystem::path path = token_file;
  return path.replace_extension(".marks");
}

MarkFile::MarkFile(const std::filesystem::path& path, std::int64_t tokens)
    : file_(std::make_shared<InputFile>(path)) {
  const std::string name = path.string();
  check(bytes() >= kHeaderBytes,
        "{}: too short for a mark file: {} bytes, but the header alone has {}", name, bytes(),
        kHeaderBytes);
  Header header{};
  file_->read(0, std::as_writable_bytes(std::span(header)));
  check(header[0] == kMagic, "{}: not a mark file: the magic number is {}; expected {}", name,
        header[0], kMagic);
  check(header[1] == kVersion, "{}: the mark file has version {}; this program reads version {}",
        name, header[1], kVersion);
  check(header[2] == tokens, "{}: marks of {} tokens in the header; the token file has {}", name,
        header[2], tokens);
  check(bytes() == kHeaderBytes + tokens,
        "{}: {}: marks of {} tokens in the header, {} in the file", name,
        bytes() < kHeaderBytes + tokens ? "truncated" : "too long", tokens, bytes() - kHeaderBytes);
}

void MarkFile::read(std::int64_t first, std::span<TokenMarks> marks) const {
  file_->read(kHeaderBytes + first, std::as_writable_bytes(marks));
}

void MarkFile::verify(std::optional<std::uint64_t> checksum) const {
  Fnv1a hash;
  std::vector<TokenMarks> piece;
  for (std::int64_t begin = 0; begin < bytes(); begin += kPiece) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, bytes() - begin)));
    file_->read(begin, std::as_writable_bytes(std::span(piece)));
    hash.add(std::as_bytes(std::span(piece)));
    const std::int64_t header = begin == 0 ? kHeaderBytes : 0;
    const auto bad = std::find_if(piece.begin() + header, piece.end(),
                                  [](TokenMarks mark) { return mark > kAllMarks; });
    check(bad == piece.end(), "{}: the marks of token {} are {}; expected 0 to {}", path().string(),
          begin + (bad - piece.begin()) - kHeaderBytes, bad == piece.end() ? 0 : *bad, kAllMarks);
  }
  check(
      !checksum || hash.value() == *checksum,
      "{}: the file is damaged: its checksum is {:016x}; {:016x} was written. Run tessera prepare "
      "again",
      path().string(), hash.value(), checksum.value_or(0));
}

void write_mark_file(const std::filesystem::path& path, std::int64_t count,
                     const std::function<void(const TakeMarks& take)>& produce) {
  const Header header = {kMagic, kVersion, static_cast<std::int32_t>(count)};
  write_file_atomically(path, [&](std::ostream& stream) {
    stream.write(reinterpret_cast<const char*>(header.data()), sizeof(header));
    std::int64_t written = 0;
    produce([&](std::span<const TokenMarks> marks) {
      written += static_cast<std::int64_t>(marks.size());
      stream.write(reinterpret_cast<const char*>(marks.data()),
                   static_cast<std::streamsize>(marks.size()));
    });
    check(written == count, "marks of {} tokens were handed over; expected {}", written, count);
  });
}

}  // namespace tessera
