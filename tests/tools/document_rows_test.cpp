#include "tools/data/document_rows.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <utility>

#include "kernels/cross_entropy/op.h"
#include "models/language_model.h"
#include "runtime/error.h"
#include "runtime/random.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"
#include "tools/data/first_fit.h"
#include "tools/data/loader.h"

namespace tessera {
namespace {

using Catch::Contains;
using Tokens = std::vector<std::int32_t>;

/// Token 0 starts a document; the others count on, so that a pair of neighbours is found once.
std::vector<TokenId> documents_of(const std::vector<std::int64_t>& lengths) {
  std::vector<TokenId> tokens;
  TokenId next = 1;
  for (const std::int64_t length : lengths) {
    tokens.push_back(0);
    for (std::int64_t i = 1; i < length; ++i) tokens.push_back(next++);
  }
  return tokens;
}

std::vector<std::int64_t> random_lengths(std::size_t count, std::uint64_t longest,
                                         std::uint64_t seed) {
  const RandomStream random(seed, "lengths");
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    lengths.push_back(1 + static_cast<std::int64_t>(random.below(i, longest)));
  }
  return lengths;
}

TokenLoader loader_of(const test::TemporaryDirectory& folder, const std::vector<TokenId>& tokens,
                      std::int64_t length, RowKind kind,
                      SampleOrder order = SampleOrder::sequential) {
  write_token_file(folder / "t.bin", tokens, 70000);
  return {TokenFile(folder / "t.bin"), length, order, 5, 0, kind};
}

Tokens values(const Tensor& tensor) {
  return tensor.to_vector<std::int32_t>();
}

constexpr std::int32_t kNone = kIgnoreIndex;

}  // namespace

TEST_CASE("first fit finds the rows that a search from the first row finds") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    FirstFit packing(50);
    std::vector<std::int64_t> used;
    for (const std::int64_t tokens : random_lengths(2000, 50, seed)) {
      const auto fits = [&](std::int64_t row) { return row + tokens <= 50; };
      const auto row = std::find_if(used.begin(), used.end(), fits) - used.begin();
      if (row == std::ssize(used)) used.push_back(0);
      used[static_cast<std::size_t>(row)] += tokens;
      REQUIRE(packing.place(static_cast<std::int32_t>(tokens)) == row);
      REQUIRE(packing.rows() == std::ssize(used));
    }
  }
}

TEST_CASE("packed rows hold whole documents that do not see each other, and padded rows one") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  // 0 1 2 | 0 3 | 0 4 5 6 7 | 0 8: the last token has none to predict.
  const std::vector<TokenId> tokens = documents_of({3, 2, 5, 2});
  const TokenLoader packed = loader_of(folder, tokens, 4, RowKind::packed);
  REQUIRE(packed.samples() == 3);
  const Batch batch = packed.load(0, 0, 3, 3);
  CHECK(values(batch.inputs) == Tokens{0, 1, 2, 7, 0, 3, 0, 0, 0, 4, 5, 6});
  CHECK(values(batch.targets) == Tokens{1, 2, 0, 0, 3, 0, 8, kNone, 4, 5, 6, 7});
  CHECK(values(batch.document_starts) == Tokens{0, 0, 0, 3, 0, 0, 2, 3, 0, 0, 0, 0});
  CHECK(batch.document_starts.device().is_cpu());
  CHECK(packed.share_of_inputs() == Approx(11.0 / 12.0));

  const TokenLoader padded = loader_of(folder, tokens, 4, RowKind::padded);
  REQUIRE(padded.samples() == 5);
  const Batch alone = padded.load(0, 0, 5, 5);
  CHECK(values(alone.inputs) == Tokens{0, 1, 2, 0, 0, 3, 0, 0, 0, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0});
  CHECK(values(alone.targets) == Tokens{1, 2, 0, kNone, 3,     0,     kNone, kNone, 4,     5,
                                        6, 7, 0, kNone, kNone, kNone, 8,     kNone, kNone, kNone});
  CHECK_FALSE(alone.document_starts.defined());
}

TEST_CASE("an epoch of document rows predicts every token exactly once") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  for (const RowKind kind : {RowKind::packed, RowKind::padded}) {
    for (const std::int64_t length : {1, 7, 32, 1000}) {
      CAPTURE(enum_name(kind), length);
      const std::vector<TokenId> tokens = documents_of(random_lengths(150, 40, 9));
      std::multiset<std::pair<std::int32_t, std::int32_t>> expected, found;
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
        expected.emplace(tokens[i], tokens[i + 1]);
      const TokenLoader loader = loader_of(folder, tokens, length, kind, SampleOrder::shuffled);
      const std::int64_t rows = loader.samples();
      const Batch batch = loader.load(3, 0, rows, rows);  // epoch 3
      const Tokens inputs = values(batch.inputs), targets = values(batch.targets);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (targets[i] != kNone) found.emplace(inputs[i], targets[i]);
      }
      CHECK(found == expected);
      CHECK(loader.loss_terms(3, 0, rows, rows) == std::ssize(tokens) - 1);
    }
  }
}

TEST_CASE("a document is in one row, from its first token on, unless it is longer than a row") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const std::vector<TokenId> tokens = documents_of(random_lengths(300, 16, 4));
  const TokenLoader loader = loader_of(folder, tokens, 16, RowKind::packed);
  const std::int64_t rows = loader.samples();
  const Batch batch = loader.load(0, 0, rows, rows);
  const Tokens inputs = values(batch.inputs), starts = values(batch.document_starts);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto place = static_cast<std::int32_t>(i % 16);
    // A start is token 0, and all that follows it in its document is not.
    REQUIRE((inputs[i] == 0) == (starts[i] == place || values(batch.targets)[i] == kNone));
  }
  CHECK(loader.share_of_inputs() > 0.9);
}

TEST_CASE("valid targets of any rows are counted without loading them") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const std::vector<TokenId> tokens = documents_of(random_lengths(60, 20, 7));
  for (const RowKind kind : {RowKind::windows, RowKind::packed, RowKind::padded}) {
    const TokenLoader loader = loader_of(folder, tokens, 12, kind, SampleOrder::shuffled);
    for (std::int64_t step = 0; step < 20; ++step) {
      const Batch batch = loader.load(step, 2, 3, 6);
      CHECK(loader.loss_terms(step, 2, 3, 6) == valid_targets(batch.targets));
    }
  }
}

TEST_CASE("document rows are a function of seed, step and row, and shuffled every epoch") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const std::vector<TokenId> tokens = documents_of(random_lengths(200, 20, 7));
  const TokenLoader loader = loader_of(folder, tokens, 24, RowKind::packed, SampleOrder::shuffled);
  const Batch whole = loader.load(4, 0, 12, 12);
  const Batch part = loader.load(9, 2, 3, 6);  // samples 56 to 58
  CHECK(test::same_bits(part.inputs, whole.inputs.slice(8, 11)));
  CHECK(test::same_bits(part.document_starts, whole.document_starts.slice(8, 11)));
  const std::int64_t rows = loader.samples();
  const Tokens first = values(loader.load(0, 0, rows, rows).inputs);
  const Tokens second = values(loader.load(1, 0, rows, rows).inputs);
  CHECK(first != second);
  CHECK(std::multiset<std::int32_t>(first.begin(), first.end()) ==
        std::multiset<std::int32_t>(second.begin(), second.end()));
}

TEST_CASE("documents are found across the pieces in which a corpus is read") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  std::vector<TokenId> tokens((1 << 20) + 5, 1);
  for (const std::size_t start : {0, (1 << 20) - 3, (1 << 20) + 2, (1 << 20) + 3})
    tokens[start] = 0;
  const TokenLoader loader = loader_of(folder, tokens, 1 << 19, RowKind::padded);
  // 2^19 and 2^19 - 3 tokens of the first document, then 5, 1 and 1.
  REQUIRE(loader.samples() == 5);
  const std::int64_t counts[] = {1 << 19, (1 << 19) - 3, 5, 1, 1};
  for (std::int64_t row = 0; row < 5; ++row) {
    CHECK(loader.loss_terms(0, row, 1, 5) == counts[row]);
  }
}

TEST_CASE("rows of documents without any are refused with the key to set") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  write_token_file(folder / "t.bin", documents_of({4, 4}));
  const auto make = [&](TokenCorpus corpus, std::optional<std::int32_t> token) {
    TokenLoader(std::move(corpus), 4, SampleOrder::shuffled, 1, token, RowKind::packed);
  };
  CHECK_THROWS_WITH(make(TokenFile(folder / "t.bin"), {}), Contains("set data.document_token"));
  CHECK_THROWS_WITH(make(TokenCorpus::open("synthetic:zipf", 9), 0),
                    Contains("synthetic:zipf has no documents; data.rows can only be windows"));
  write_token_file(folder / "t.bin", std::vector<TokenId>{0});
  CHECK_THROWS_WITH(make(TokenFile(folder / "t.bin"), 0),
                    Contains("t.bin holds 1 tokens, too few to predict one from another"));
}

}  // namespace tessera
