#include "tools/data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "runtime/check.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they are");

using Header = std::array<std::int32_t, 256>;
constexpr std::int32_t kMagic = 20240520;
constexpr std::int32_t kVersion = 1;

Header read_header(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  Header header{};
  check(bytes.size() >= sizeof(header),
        "{}: too short for a token file: {} bytes, but the header alone has {}",
        file.path().string(), bytes.size(), sizeof(header));
  std::memcpy(header.data(), bytes.data(), sizeof(header));
  return header;
}

void check_header(const Header& header, const MappedFile& file) {
  const std::string path = file.path().string();
  check(header[0] == kMagic, "{}: not a token file: magic number {}, expected {}", path, header[0],
        kMagic);
  check(header[1] == kVersion, "{}: token file version {}, this program reads version {}", path,
        header[1], kVersion);
  check(header[2] >= 0, "{}: the header claims {} tokens", path, header[2]);
}

void check_size(const Header& header, const MappedFile& file) {
  const std::string path = file.path().string();
  const std::size_t data = file.bytes().size() - sizeof(Header);
  const std::size_t expected = static_cast<std::size_t>(header[2]) * sizeof(TokenId);
  check(data % sizeof(TokenId) == 0, "{}: odd length: {} bytes of tokens of 2 bytes each", path,
        data);
  check(data == expected, "{}: {}: {} tokens in the header, {} in the file", path,
        data < expected ? "truncated" : "too long", header[2], data / sizeof(TokenId));
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path)
    : file_(std::make_shared<MappedFile>(path)) {
  const Header header = read_header(*file_);
  check_header(header, *file_);
  check_size(header, *file_);
  // Aligned: a mapping starts at a page, the tokens 1024 bytes later.
  tokens_ = {reinterpret_cast<const TokenId*>(file_->bytes().data() + sizeof(Header)),
             static_cast<std::size_t>(header[2])};
}

void TokenFile::check_vocabulary(std::int64_t vocab_size) const {
  TokenId greatest = 0;
  for (const TokenId token : tokens_) greatest = std::max(greatest, token);
  if (tokens_.empty() || greatest < vocab_size) return;
  const auto bad =
      std::find_if(tokens_.begin(), tokens_.end(), [&](TokenId t) { return t >= vocab_size; });
  fail("{}: vocabulary mismatch: token {} at position {}, but the model's vocabulary has {} tokens",
       path().string(), *bad, bad - tokens_.begin(), vocab_size);
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
