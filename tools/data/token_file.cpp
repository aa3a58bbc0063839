#include "tools/data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <vector>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/hash.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they are stored");

using Header = std::array<std::int32_t, TokenFile::kHeaderBytes / 4>;
constexpr std::int32_t kMagic = 20240520;
constexpr std::int32_t kVersion = 1;

Header read_header(const InputFile& file) {
  Header header{};
  check(file.size() >= TokenFile::kHeaderBytes,
        "{}: too short for a token file: {} bytes, but the header alone has {}",
        file.path().string(), file.size(), TokenFile::kHeaderBytes);
  file.read(0, std::as_writable_bytes(std::span(header)));
  return header;
}

void check_header(const Header& header, const InputFile& file) {
  const std::string path = file.path().string();
  check(header[0] == kMagic, "{}: not a token file: the magic number is {}; expected {}", path,
        header[0], kMagic);
  check(header[1] == kVersion, "{}: the token file has version {}; this program reads version {}",
        path, header[1], kVersion);
  check(header[2] >= 0, "{}: the header claims {} tokens", path, header[2]);
}

void check_size(const Header& header, const InputFile& file) {
  const std::string path = file.path().string();
  const std::int64_t data = file.size() - TokenFile::kHeaderBytes;
  const std::int64_t expected = 2 * std::int64_t{header[2]};
  check(data % 2 == 0, "{}: odd length: {} bytes of tokens of 2 bytes each", path, data);
  check(data == expected, "{}: {}: {} tokens in the header, {} in the file", path,
        data < expected ? "truncated" : "too long", header[2], data / 2);
}

void check_below(std::span<const TokenId> tokens, std::int64_t first, std::int64_t vocab_size,
                 const std::filesystem::path& path) {
  // The common case is one pass that the compiler vectorizes.
  const auto greatest = std::max_element(tokens.begin(), tokens.end());
  if (tokens.empty() || *greatest < vocab_size) return;
  const auto bad =
      std::find_if(tokens.begin(), tokens.end(), [&](TokenId t) { return t >= vocab_size; });
  fail("{}: vocabulary mismatch: token {} at position {}, but the model's vocabulary has {} tokens",
       path.string(), *bad, first + (bad - tokens.begin()), vocab_size);
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path) : file_(std::make_shared<InputFile>(path)) {
  const Header header = read_header(*file_);
  check_header(header, *file_);
  check_size(header, *file_);
}

void TokenFile::read(std::int64_t first, std::span<TokenId> tokens) const {
  file_->read(kHeaderBytes + 2 * first, std::as_writable_bytes(tokens));
}

void TokenFile::verify(std::int64_t vocab_size, std::optional<std::uint64_t> checksum) const {
  constexpr std::int64_t kPiece = 1 << 20;
  Fnv1a hash;
  if (checksum) {
    Header header{};
    file_->read(0, std::as_writable_bytes(std::span(header)));
    hash.add(std::as_bytes(std::span(header)));
  }
  std::vector<TokenId> piece;
  for (std::int64_t first = 0; first < size(); first += kPiece) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, size() - first)));
    read(first, piece);
    check_below(piece, first, vocab_size, path());
    if (checksum) hash.add(std::as_bytes(std::span(piece)));
  }
  check(
      !checksum || hash.value() == *checksum,
      "{}: the file is damaged: its checksum is {:016x}; {:016x} was written. Run tessera prepare "
      "again",
      path().string(), hash.value(), checksum.value_or(0));
}

void write_token_file(const std::filesystem::path& path, std::span<const TokenId> tokens) {
  check(tokens.size() <= std::numeric_limits<std::int32_t>::max(),
        "cannot write {}: {} tokens, but a token file holds at most 2^31 - 1", path.string(),
        tokens.size());
  const Header header = {kMagic, kVersion, static_cast<std::int32_t>(tokens.size())};
  write_file_atomically(path, [&](std::ostream& stream) {
    stream.write(reinterpret_cast<const char*>(header.data()), sizeof(header));
    stream.write(reinterpret_cast<const char*>(tokens.data()),
                 static_cast<std::streamsize>(tokens.size_bytes()));
  });
}

}  // namespace tessera
