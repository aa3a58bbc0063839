#include "tools/data/token_corpus.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "runtime/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

/// Tokens first, first + 1, ...
fs::path write_counting(const fs::path& path, TokenId first, std::size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  write_token_file(path, tokens);
  return path;
}

std::vector<TokenId> all_of(const TokenCorpus& corpus) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(corpus.size()));
  corpus.read(0, tokens);
  return tokens;
}

std::vector<TokenId> generated(const std::string& kind, std::size_t count) {
  std::vector<TokenId> tokens(count);
  TokenCorpus::open("synthetic:" + kind, 100).read(0, tokens);
  return tokens;
}

/// The folder has 0 to 6 in three files.
void write_files(const test::TemporaryDirectory& folder) {
  write_counting(folder / "t_0.bin", 0, 3);
  write_counting(folder / "t_1.bin", 0, 0);
  write_counting(folder / "t_2.bin", 3, 4);
}

}  // namespace

TEST_CASE("a corpus of several files is one sequence") {
  const test::TemporaryDirectory folder;
  write_files(folder);
  const std::vector<TokenId> expected = {0, 1, 2, 3, 4, 5, 6};
  CHECK(all_of(TokenCorpus::open(folder / "t_*.bin", 7)) == expected);
  const std::string list = (folder / "t_0.bin").string() + ", " + (folder / "t_[12].bin").string();
  const TokenCorpus listed = TokenCorpus::open(list, 7);
  CHECK(all_of(listed) == expected);
  CHECK(listed.name() == list);
  std::vector<TokenId> across(3);
  listed.read(2, across);
  CHECK(across == std::vector<TokenId>{2, 3, 4});
  CHECK(all_of(TokenCorpus::open(
            (folder / "t_2.bin").string() + "," + (folder / "t_0.bin").string(), 7)) ==
        std::vector<TokenId>{3, 4, 5, 6, 0, 1, 2});
}

TEST_CASE("a setting that names no token file is refused with the reason") {
  const test::TemporaryDirectory folder;
  write_files(folder);
  const auto open = [&](const std::string& setting) { TokenCorpus::open(setting, 7); };
  CHECK_THROWS_WITH(open((folder / "x_*.bin").string()), Contains("no file fits the pattern"));
  CHECK_THROWS_WITH(open((folder / "x.bin").string()), Contains("x.bin"));
  CHECK_THROWS_WITH(open(","), Contains("empty"));
  CHECK_THROWS_WITH(open("synthetic:music"),
                    Contains("'music': choose one of uniform, zipf, copy"));
  CHECK_THROWS_WITH(TokenCorpus::open(folder / "t_*.bin", 5),
                    Contains("t_2.bin: vocabulary mismatch: token 5"));
}

TEST_CASE("the folder of a corpus is that of its first file") {
  CHECK(data_folder_of("a/b/t_*.bin") == "a/b");
  CHECK(data_folder_of("a/x.bin, c/y.bin") == "a");
  CHECK(data_folder_of("synthetic:copy") == "");
  CHECK(data_folder_of("") == "");
  const test::TemporaryDirectory folder;
  fs::create_directory(folder / "with, comma");
  write_counting(folder / "with, comma/t.bin", 0, 2);
  CHECK(data_folder_of(folder / "with, comma/t.bin") == folder / "with, comma");
}

TEST_CASE("synthetic tokens follow their rule, at any position") {
  const std::vector<TokenId> copy = generated("copy", 640);
  for (std::size_t i = 0; i < 640; i += 64) {
    const auto begin = copy.begin() + static_cast<std::ptrdiff_t>(i);
    CHECK(std::equal(begin, begin + 32, begin + 32));
    CHECK_FALSE(std::equal(begin, begin + 16, begin + 16));
  }
  std::vector<TokenId> later(10);
  TokenCorpus::open("synthetic:copy", 100).read(630, later);
  CHECK(std::equal(later.begin(), later.end(), copy.end() - 10));

  const std::size_t count = 100'000;
  const auto share = [&](const std::vector<TokenId>& tokens, TokenId token) {
    return static_cast<double>(std::count(tokens.begin(), tokens.end(), token)) / count;
  };
  const std::vector<TokenId> uniform = generated("uniform", count);
  const std::vector<TokenId> zipf = generated("zipf", count);
  // ln((k + 2) / (k + 1)) / ln 101. The bound is five standard deviations of the count.
  for (const TokenId k : {0u, 1u, 9u, 99u}) {
    const double expected = std::log((k + 2.0) / (k + 1.0)) / std::log(101.0);
    CHECK(std::abs(share(zipf, k) - expected) < 5.0 * std::sqrt(expected / count));
    CHECK(std::abs(share(uniform, k) - 0.01) < 5.0 * std::sqrt(0.01 / count));
  }
}

}  // namespace tessera
