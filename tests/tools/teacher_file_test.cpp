#include "tools/data/teacher_file.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "runtime/error.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

constexpr std::int64_t kTopK = 2, kTokens = 3;

/// Three tokens and a teacher's file about them. The last record is empty.
struct Written {
  test::TemporaryDirectory folder;
  TokenFile tokens;
  std::vector<TokenId> ids;
  std::vector<float16> values;

  explicit Written(std::int64_t vocab_size, TokenId last = 9)
      : tokens(write_tokens()), ids{5, last, 7, 0, 0, 0} {
    for (const float value : {-0.5f, -1.25f, -0.125f}) values.emplace_back(value);
    values.resize(ids.size(), kNoProbability);
    write(vocab_size);
  }

  fs::path path() const { return folder / "train.teacher"; }
  void write(std::int64_t vocab_size, std::int64_t records = kTokens) {
    const TeacherHeader header = {kTopK, vocab_size, kTokens, hash_of_tokens(tokens)};
    write_teacher_file(path(), header, [&](const TakeRecords& take) {
      const auto first = static_cast<std::size_t>(kTopK);
      take({std::span(ids).first(first), std::span(values).first(first)});
      const auto rest = static_cast<std::size_t>((records - 1) * kTopK);
      take({std::span(ids).subspan(first, rest), std::span(values).subspan(first, rest)});
    });
  }
  /// The error of the file with these bytes at an offset.
  std::string refusal(std::int64_t offset, const std::vector<std::uint16_t>& words) const {
    const fs::path copy = folder / "copy.teacher";
    fs::copy_file(path(), copy, fs::copy_options::overwrite_existing);
    std::fstream stream(copy, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(offset);
    stream.write(reinterpret_cast<const char*>(words.data()),
                 static_cast<std::streamsize>(2 * words.size()));
    stream.close();
    return test::error_of([&] {
      const TeacherFile file(copy);
      file.check_tokens(tokens);
      std::vector<TokenId> read_ids(ids.size());
      std::vector<float16> read_values(ids.size());
      file.read(0, kTopK, {read_ids, read_values});
    });
  }

 private:
  TokenFile write_tokens() const {
    const std::vector<TokenId> three = {4, 5, 7};
    write_token_file(folder / "train.bin", three);
    return TokenFile(folder / "train.bin");
  }
};

}  // namespace

TEST_CASE("a teacher file gives back ids and log-probabilities of any tokens") {
  for (const std::int64_t vocab_size : {std::int64_t{65536}, std::int64_t{65537}}) {
    CAPTURE(vocab_size);
    const Written written(vocab_size, static_cast<TokenId>(vocab_size - 1));
    const TeacherFile file(written.path());
    file.check_tokens(written.tokens);
    CHECK(teacher_file_of(written.tokens.path()) == written.path());
    CHECK(file.header().top_k == kTopK);
    CHECK(file.header().vocab_size == vocab_size);
    CHECK(static_cast<std::int64_t>(fs::file_size(written.path())) ==
          1024 + kTokens * kTopK * (vocab_size == 65536 ? 4 : 6));
    for (const std::size_t first : {0u, 1u, 2u}) {
      const std::size_t places = written.ids.size() - 2 * first;
      std::vector<TokenId> ids(places);
      std::vector<float16> values(places);
      file.read(static_cast<std::int64_t>(first), kTopK, {ids, values});
      for (std::size_t k = 0; k < places; ++k) {
        CHECK(ids[k] == written.ids[2 * first + k]);
        CHECK(values[k].bits == written.values[2 * first + k].bits);
      }
      std::vector<TokenId> likeliest(places / 2);
      values.resize(places / 2);
      file.read(static_cast<std::int64_t>(first), 1, {likeliest, values});
      for (std::size_t n = 0; n < likeliest.size(); ++n) {
        CHECK(likeliest[n] == written.ids[2 * (first + n)]);
        CHECK(values[n].bits == written.values[2 * (first + n)].bits);
      }
    }
  }
}

TEST_CASE("a teacher file of other tokens is refused, however wide the tokens are stored") {
  const Written written(100);
  const TeacherFile file(written.path());
  const std::vector<TokenId> same = {4, 5, 7}, other = {4, 6, 7}, longer = {4, 5, 7, 0};
  const auto refusal = [&](const std::vector<TokenId>& tokens, std::int64_t vocab_size) {
    const fs::path path = written.folder / "other.bin";
    write_token_file(path, tokens, vocab_size);
    return test::error_of([&] { file.check_tokens(TokenFile(path)); });
  };
  CHECK(refusal(same, 100) == "no error");
  CHECK(refusal(same, 70000) == "no error");
  CHECK_THAT(refusal(other, 100), Contains("other tokens than those of") && Contains("other.bin"));
  CHECK_THAT(refusal(longer, 100), Contains("other tokens than those of"));
}

TEST_CASE("a teacher file with a bad header or of a wrong size is refused in one line") {
  const Written written(100);
  CHECK(written.refusal(0, {}) == "no error");
  CHECK_THAT(written.refusal(0, {1}), Contains("not a teacher file"));
  CHECK_THAT(written.refusal(4, {2}), Contains("version 2"));
  CHECK_THAT(written.refusal(8, {0}), Contains("0 places"));
  CHECK_THAT(written.refusal(8, {1024}), Contains("expected 1 to 1023"));
  CHECK_THAT(written.refusal(12, {0, 0x8000}), Contains("a vocabulary of"));
  CHECK_THAT(written.refusal(16, {0, 0, 0, 0x8000}), Contains("claims"));
  CHECK_THAT(written.refusal(16, {4}), Contains("truncated"));
  CHECK_THAT(written.refusal(16, {2}), Contains("too long"));
  CHECK_THAT(written.refusal(24, {0}), Contains("other tokens"));
  std::ofstream(written.folder / "short.teacher") << "abc";
  CHECK_THAT(test::error_of([&] { TeacherFile(written.folder / "short.teacher"); }),
             Contains("too short"));
}

TEST_CASE("a record that is no distribution is refused with its token") {
  const Written written(100);
  const std::int64_t second = 1024 + 8;  // 2 ids, 2 values
  CHECK_THAT(written.refusal(1024, {100}), Contains("token 0 has the id 100"));
  CHECK_THAT(written.refusal(1024, {9}), Contains("token 0 has the id 9 twice"));
  CHECK_THAT(written.refusal(second + 4, {0x3c00}), Contains("token 1 has the log-probability 1;"));
  CHECK_THAT(written.refusal(second + 4, {0x7e00}),
             Contains("token 1 has the log-probability nan"));
  CHECK_THAT(written.refusal(1024 + 4, {0xbd01}),
             Contains("the record of token 0 is not in falling order"));
  CHECK_THAT(written.refusal(second + 4, {0xfc00, 0xb800}),
             Contains("the record of token 1 is not in falling order"));
}

TEST_CASE("a teacher file is written whole or not at all") {
  Written written(100);
  fs::remove(written.path());
  CHECK_THAT(test::error_of([&] { written.write(100, kTokens - 1); }),
             Contains("records of 2 tokens were handed over; expected 3"));
  CHECK(std::distance(fs::directory_iterator(written.folder.path()), {}) == 1);
}

}  // namespace tessera
