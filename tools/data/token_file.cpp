#include "tools/data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/hash.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they are stored");

using Header = std::array<std::int32_t, TokenFile::kHeaderBytes / 4>;
constexpr std::int64_t kPiece = 1 << 20;  // tokens converted at a time

struct Format {
  std::int32_t magic, version;
  std::int64_t width;  // bytes of a token
};
constexpr std::array<Format, 2> kFormats = {{{20240520, 1, 2}, {20240801, 7, 4}}};

Header read_header(const InputFile& file) {
  Header header{};
  check(file.size() >= TokenFile::kHeaderBytes,
        "{}: too short for a token file: {} bytes, but the header alone has {}",
        file.path().string(), file.size(), TokenFile::kHeaderBytes);
  file.read(0, std::as_writable_bytes(std::span(header)));
  return header;
}

constexpr int kLowerBits = 31;
/// Bounds the upper bits, so that the bytes of all tokens fit into 63 bits.
constexpr std::int32_t kMostUpper = 1 << 28;

std::int64_t tokens_in(const Header& header) {
  return (std::int64_t{header[3]} << kLowerBits) + header[2];
}

const Format& format_of(const Header& header, const InputFile& file) {
  const std::string path = file.path().string();
  const auto format = std::ranges::find(kFormats, header[0], &Format::magic);
  check(format != kFormats.end(), "{}: not a token file: the magic number is {}; expected {} or {}",
        path, header[0], kFormats[0].magic, kFormats[1].magic);
  check(header[1] == format->version,
        "{}: the token file has version {}; this program reads version {}", path, header[1],
        format->version);
  check(header[2] >= 0 && header[3] >= 0 && header[3] < kMostUpper,
        "{}: the header claims {} tokens", path, tokens_in(header));
  return *format;
}

void check_size(const Header& header, std::int64_t width, const InputFile& file) {
  const std::string path = file.path().string();
  const std::int64_t data = file.size() - TokenFile::kHeaderBytes;
  const std::int64_t tokens = tokens_in(header), expected = width * tokens;
  check(data % width == 0, "{}: odd length: {} bytes of tokens of {} bytes each", path, data,
        width);
  check(data == expected, "{}: {}: {} tokens in the header, {} in the file", path,
        data < expected ? "truncated" : "too long", tokens, data / width);
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

/// Calls `take` with the bytes of the tokens as they are in a file, piece by piece.
template <typename Take>
void for_bytes(std::span<const TokenId> tokens, std::int64_t width, const Take& take) {
  if (width == 4) return take(std::as_bytes(tokens));
  std::vector<std::uint16_t> narrow;
  while (!tokens.empty()) {
    const auto piece = tokens.first(std::min(tokens.size(), static_cast<std::size_t>(kPiece)));
    narrow.assign(piece.begin(), piece.end());
    take(std::as_bytes(std::span(narrow)));
    tokens = tokens.subspan(piece.size());
  }
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path) : file_(std::make_shared<InputFile>(path)) {
  const Header header = read_header(*file_);
  width_ = format_of(header, *file_).width;
  check_size(header, width_, *file_);
}

void TokenFile::read(std::int64_t first, std::span<TokenId> tokens) const {
  const std::int64_t offset = kHeaderBytes + width_ * first;
  if (width_ == 4) return file_->read(offset, std::as_writable_bytes(tokens));
  std::vector<std::uint16_t> narrow(tokens.size());
  file_->read(offset, std::as_writable_bytes(std::span(narrow)));
  std::ranges::copy(narrow, tokens.begin());
}

void TokenFile::verify(std::int64_t vocab_size, std::optional<std::uint64_t> checksum) const {
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
    if (checksum)
      for_bytes(piece, width_, [&](std::span<const std::byte> bytes) { hash.add(bytes); });
  }
  check(
      !checksum || hash.value() == *checksum,
      "{}: the file is damaged: its checksum is {:016x}; {:016x} was written. Run tessera prepare "
      "again",
      path().string(), hash.value(), checksum.value_or(0));
}

void write_token_file(const std::filesystem::path& path, std::int64_t count,
                      std::int64_t vocab_size,
                      const std::function<void(const TakeTokens& take)>& produce) {
  const Format& format = kFormats[bytes_per_token(vocab_size) == 2 ? 0 : 1];
  const auto lower = static_cast<std::int32_t>(count & ((std::int64_t{1} << kLowerBits) - 1));
  const auto upper = static_cast<std::int32_t>(count >> kLowerBits);
  const Header header = {format.magic, format.version, lower, upper};
  write_file_atomically(path, [&](std::ostream& stream) {
    stream.write(reinterpret_cast<const char*>(header.data()), sizeof(header));
    std::int64_t written = 0;
    produce([&](std::span<const TokenId> tokens) {
      check_below(tokens, written, vocab_size, path);
      written += static_cast<std::int64_t>(tokens.size());
      for_bytes(tokens, format.width, [&](std::span<const std::byte> bytes) {
        stream.write(reinterpret_cast<const char*>(bytes.data()),
                     static_cast<std::streamsize>(bytes.size()));
      });
    });
    check(written == count, "{} tokens were handed over; expected {}", written, count);
  });
}

void write_token_file(const std::filesystem::path& path, std::span<const TokenId> tokens,
                      std::int64_t vocab_size) {
  check_below(tokens, 0, vocab_size, path);
  write_token_file(path, static_cast<std::int64_t>(tokens.size()), vocab_size,
                   [&](const TakeTokens& take) { take(tokens); });
}

}  // namespace tessera
