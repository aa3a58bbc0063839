#include "tools/data/token_file.h"

#include <catch2/catch.hpp>

#include "runtime/file.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/prepared_files.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::tokens_in;
using test::write_text;
namespace fs = std::filesystem;

void put(std::string& bytes, std::uint32_t value, int count) {
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

/// A token file byte by byte, as the format says.
std::string token_file_bytes(std::uint32_t magic, std::uint32_t version, std::uint32_t count,
                             const std::vector<TokenId>& tokens, int width = 2) {
  std::string bytes;
  for (const std::uint32_t field : {magic, version, count}) put(bytes, field, 4);
  bytes.resize(1024, '\0');
  for (const TokenId token : tokens) put(bytes, token, width);
  return bytes;
}

const std::vector<TokenId> kTokens = {1, 256, 65535, 0, 7};

}  // namespace

TEST_CASE("a token file is written in llm.c's layout") {
  const test::TemporaryDirectory folder;
  write_token_file(folder / "t.bin", kTokens);
  REQUIRE(read_text_file(folder / "t.bin") == token_file_bytes(20240520, 1, 5, kTokens));
}

TEST_CASE("a token file in llm.c's layout is read") {
  const test::TemporaryDirectory folder;
  write_text(folder / "t.bin", token_file_bytes(20240520, 1, 5, kTokens));
  REQUIRE(tokens_in(folder / "t.bin") == kTokens);
  REQUIRE(TokenFile(folder / "t.bin").path() == folder / "t.bin");
}

TEST_CASE("a vocabulary beyond 65536 tokens is written in llm.c's layout of 32 bits, and read") {
  const test::TemporaryDirectory folder;
  const std::vector<TokenId> tokens = {0, 65535, 65536, 128255, 7};
  const std::string expected = token_file_bytes(20240801, 7, 5, tokens, 4);
  write_token_file(folder / "t.bin", tokens, 128256);
  REQUIRE(read_text_file(folder / "t.bin") == expected);
  const TokenFile file(write_text(folder / "u.bin", expected));
  REQUIRE(tokens_in(folder / "u.bin") == tokens);
  TokenId middle[2];
  file.read(2, middle);
  REQUIRE(middle[1] == 128255);
  REQUIRE_NOTHROW(file.verify(128256));
  REQUIRE_THROWS_WITH(file.verify(128255), Contains("token 128255 at position 3"));
  write_token_file(folder / "t.bin", kTokens, 65536);
  REQUIRE(read_text_file(folder / "t.bin") == token_file_bytes(20240520, 1, 5, kTokens));
  write_token_file(folder / "t.bin", kTokens, 65537);
  REQUIRE(read_text_file(folder / "t.bin") == token_file_bytes(20240801, 7, 5, kTokens, 4));
  REQUIRE_THROWS_WITH(write_token_file(folder / "t.bin", tokens, 65537),
                      Contains("token 128255 at position 3"));
}

TEST_CASE("copies of a token file share its tokens") {
  const test::TemporaryDirectory folder;
  write_token_file(folder / "t.bin", kTokens);
  auto file = std::make_unique<TokenFile>(folder / "t.bin");
  const TokenFile copy = *file;
  file.reset();
  std::vector<TokenId> tokens(kTokens.size());
  copy.read(0, tokens);
  REQUIRE(tokens == kTokens);
}

TEST_CASE("a bad token file is refused with path and reason") {
  const test::TemporaryDirectory folder;
  const auto open = [&](const std::string& bytes) {
    return TokenFile(write_text(folder / "bad.bin", bytes));
  };
  const std::string good = token_file_bytes(20240520, 1, 5, kTokens);
  CHECK_THROWS_WITH(TokenFile(folder / "none.bin"), Contains("none.bin"));
  CHECK_THROWS_WITH(open(""), Contains("bad.bin: too short") && Contains("0 bytes"));
  CHECK_THROWS_WITH(open(good.substr(0, 1023)), Contains("too short") && Contains("1023"));
  CHECK_THROWS_WITH(open(token_file_bytes(20240802, 1, 5, kTokens)),
                    Contains("bad.bin: not a token file: the magic number is 20240802"));
  CHECK_THROWS_WITH(
      open(token_file_bytes(20240801, 1, 5, kTokens)),
      Contains("bad.bin: the token file has version 1; this program reads version 7"));
  CHECK_THROWS_WITH(open(token_file_bytes(20240801, 7, 5, kTokens)),
                    Contains("bad.bin: odd length: 10 bytes of tokens of 4 bytes"));
  CHECK_THROWS_WITH(open(token_file_bytes(20240520, 7, 5, kTokens)),
                    Contains("bad.bin: the token file has version 7"));
  CHECK_THROWS_WITH(open(token_file_bytes(20240520, 1, 0x80000000u, kTokens)),
                    Contains("-2147483648 tokens"));
  CHECK_THROWS_WITH(open(good.substr(0, good.size() - 1)),
                    Contains("bad.bin: odd length: 9 bytes"));
  CHECK_THROWS_WITH(open(good + "x"), Contains("odd length: 11 bytes"));
  CHECK_THROWS_WITH(open(good.substr(0, good.size() - 2)),
                    Contains("bad.bin: truncated: 5 tokens in the header, 4 in the file"));
  CHECK_THROWS_WITH(open(good + "xx"), Contains("too long: 5 tokens in the header, 6 in the file"));
  CHECK_THROWS_WITH(open(token_file_bytes(20240520, 1, 2147483647, kTokens)),
                    Contains("truncated"));
}

TEST_CASE("a sparse token file of more than 2^32 tokens is read at its end") {
  const test::TemporaryDirectory folder;
  // Below and above 2^31, where llm.c's header ends, and above 2^32.
  for (const std::int64_t count :
       {(std::int64_t{1} << 31) - 1, (std::int64_t{1} << 31) + 3, (std::int64_t{1} << 32) + 5}) {
    CAPTURE(count);
    const fs::path path = folder / "large.bin";
    std::string header = token_file_bytes(20240520, 1, count & 0x7fffffff, {});
    header[12] = static_cast<char>(count >> 31);
    write_text(path, header);
    fs::resize_file(path, static_cast<std::uintmax_t>(1024 + 2 * (count - 2)));
    std::ofstream(path, std::ios::app | std::ios::binary).write("\x07\x00\x08\x00", 4);
    const TokenFile file(path);
    REQUIRE(file.size() == count);
    std::vector<TokenId> last(3);
    file.read(count - 3, last);
    CHECK(last == std::vector<TokenId>{0, 7, 8});
    fs::resize_file(path, fs::file_size(path) - 2);
    CHECK_THROWS_WITH(TokenFile(path), Contains("truncated: " + std::to_string(count)));
  }
}

TEST_CASE("a token outside the vocabulary is named with its position") {
  const test::TemporaryDirectory folder;
  write_token_file(folder / "t.bin", kTokens);
  const TokenFile file(folder / "t.bin");
  REQUIRE_NOTHROW(file.verify(65536));
  REQUIRE_THROWS_WITH(file.verify(65535), Contains("t.bin: vocabulary mismatch") &&
                                              Contains("token 65535 at position 2"));
  REQUIRE_THROWS_WITH(file.verify(256),
                      Contains("token 256 at position 1") && Contains("has 256 tokens"));
  write_token_file(folder / "empty.bin", {});
  REQUIRE(TokenFile(folder / "empty.bin").size() == 0);
  REQUIRE_NOTHROW(TokenFile(folder / "empty.bin").verify(1));
}

TEST_CASE("a token outside the vocabulary is found far into a file") {
  const test::TemporaryDirectory folder;
  std::vector<TokenId> tokens(3'000'000, 5);
  tokens[2'500'000] = 6;
  write_token_file(folder / "t.bin", tokens);
  const TokenFile file(folder / "t.bin");
  REQUIRE_NOTHROW(file.verify(7));
  REQUIRE_THROWS_WITH(file.verify(6), Contains("token 6 at position 2500000"));
}

TEST_CASE("a token file that becomes shorter while it is open is an error") {
  const test::TemporaryDirectory folder;
  write_token_file(folder / "t.bin", std::vector<TokenId>(10'000, 5));
  const TokenFile file(folder / "t.bin");
  fs::resize_file(folder / "t.bin", 1024 + 2 * 100);
  std::vector<TokenId> tokens(100);
  REQUIRE_NOTHROW(file.read(0, tokens));
  REQUIRE_THROWS_WITH(file.read(9'000, tokens), Contains("t.bin ends at byte 19024"));
  REQUIRE_THROWS_WITH(file.verify(6), Contains("t.bin ends at byte 1224"));
}

TEST_CASE("an unwritable folder is an error that names the file") {
  REQUIRE_THROWS_WITH(write_token_file("/dev/null/t.bin", kTokens), Contains("/dev/null/t.bin"));
}

}  // namespace tessera
