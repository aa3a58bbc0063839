#include "tools/data/loader.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <fstream>
#include <numeric>
#include <set>

#include "runtime/error.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using Tokens = std::vector<std::int32_t>;

/// A file with token i at position i.
TokenFile counting_file(const test::TemporaryDirectory& folder, int count) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), TokenId{0});
  write_token_file(folder / "t.bin", tokens);
  return TokenFile(folder / "t.bin");
}

/// The targets of one whole epoch, in the order of the samples.
Tokens targets_of_epoch(const TokenLoader& loader, std::int64_t epoch) {
  return loader.load(epoch, 0, loader.samples(), loader.samples())
      .targets.to_vector<std::int32_t>();
}

Tokens sorted(Tokens tokens) {
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

Tokens consecutive(std::int32_t first, std::size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

}  // namespace

TEST_CASE("sequential windows lie end to end, with targets one token ahead") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const TokenLoader loader(counting_file(folder, 10), 3, SampleOrder::sequential);
  REQUIRE(loader.samples() == 3);
  const Batch batch = loader.load(0, 0, 3, 3);
  REQUIRE(batch.inputs.shape() == Shape{3, 3});
  REQUIRE(batch.inputs.to_vector<std::int32_t>() == consecutive(0, 9));
  REQUIRE(batch.targets.to_vector<std::int32_t>() == consecutive(1, 9));
  // Samples 4, 5, 6: at the end of the file the order starts again.
  REQUIRE(loader.load(1, 0, 3, 4).inputs.to_vector<std::int32_t>() ==
          Tokens{3, 4, 5, 6, 7, 8, 0, 1, 2});
}

TEST_CASE("a file of one window is enough, in either order") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  for (const SampleOrder order : {SampleOrder::sequential, SampleOrder::shuffled}) {
    const TokenLoader loader(counting_file(folder, 6), 5, order, 3);
    REQUIRE(loader.samples() == 1);
    REQUIRE(targets_of_epoch(loader, 7) == consecutive(1, 5));
  }
}

TEST_CASE("a shuffled row is a window of consecutive tokens and its targets") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const TokenLoader loader(counting_file(folder, 1000), 16, SampleOrder::shuffled, 5);
  const Batch batch = loader.load(40, 0, 8, 8);
  for (std::int64_t row = 0; row < 8; ++row) {
    const Tokens inputs = batch.inputs.slice(row, row + 1).to_vector<std::int32_t>();
    const Tokens targets = batch.targets.slice(row, row + 1).to_vector<std::int32_t>();
    REQUIRE(inputs == consecutive(inputs[0], 16));
    REQUIRE(targets == consecutive(inputs[0] + 1, 16));
  }
}

TEST_CASE("an epoch predicts every token of its span exactly once") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  for (const int count : {8, 13, 14, 15, 100, 1000, 1003}) {
    const TokenLoader loader(counting_file(folder, count), 7, SampleOrder::shuffled, 11);
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      CAPTURE(count, epoch);
      const Tokens targets = sorted(targets_of_epoch(loader, epoch));
      REQUIRE(targets == consecutive(targets[0], targets.size()));
      // Fewer than two windows are lost at the ends of the file.
      REQUIRE(static_cast<int>(targets.size()) > count - 1 - 2 * 7);
      REQUIRE(targets.back() < count);
    }
  }
}

TEST_CASE("epochs and seeds differ in order, and epochs in where windows begin") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const std::int64_t length = 8;
  const TokenFile file = counting_file(folder, 4000);
  const TokenLoader loader(file, length, SampleOrder::shuffled, 2);
  std::set<Tokens> orders;
  std::set<std::int32_t> offsets;
  for (std::int64_t epoch = 0; epoch < 60; ++epoch) {
    const Tokens targets = targets_of_epoch(loader, epoch);
    REQUIRE_FALSE(std::is_sorted(targets.begin(), targets.end()));
    orders.insert(targets);
    offsets.insert((targets[0] - 1) % static_cast<std::int32_t>(length));
  }
  REQUIRE(orders.size() == 60);
  const TokenLoader other(file, length, SampleOrder::shuffled, 3);
  REQUIRE_FALSE(orders.contains(targets_of_epoch(other, 0)));
  REQUIRE(offsets.size() == 8);  // all of [0, 8): missing one has probability 8 (7/8)^60 = 0.3 %
}

TEST_CASE("a batch depends on seed, step and row alone, not on the rank that loads it") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const TokenFile file = counting_file(folder, 5000);
  const TokenLoader loader(file, 10, SampleOrder::shuffled, 42);
  const Batch whole = loader.load(123, 0, 12, 12);
  const TokenLoader another(file, 10, SampleOrder::shuffled, 42);
  REQUIRE(another.load(123, 2, 0, 12).inputs.shape() == Shape{0, 10});
  for (std::int64_t row = 0; row < 12; row += 3) {
    const Batch part = another.load(123, row, 3, 12);
    REQUIRE(test::same_bits(part.inputs, whole.inputs.slice(row, row + 3)));
    REQUIRE(test::same_bits(part.targets, whole.targets.slice(row, row + 3)));
  }
}

TEST_CASE("samples are numbered through the run, at any batch size") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const TokenLoader loader(counting_file(folder, 300), 10, SampleOrder::shuffled, 1);
  // Steps 0 to 5 of 10 rows are steps 0 to 2 of 20 rows, across the epoch's border too.
  for (std::int64_t step = 0; step < 3; ++step) {
    const Batch large = loader.load(step, 0, 20, 20);
    REQUIRE(test::same_bits(large.inputs.slice(0, 10), loader.load(2 * step, 0, 10, 10).inputs));
    REQUIRE(
        test::same_bits(large.inputs.slice(10, 20), loader.load(2 * step + 1, 0, 10, 10).inputs));
  }
}

TEST_CASE("with a document token a batch says where its documents start, on the host") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  write_token_file(folder / "t.bin", std::vector<TokenId>{7, 1, 7, 2, 3, 7, 4, 5, 6});
  const TokenLoader loader(TokenFile(folder / "t.bin"), 4, SampleOrder::sequential, 0, 7);
  const Batch batch = loader.load(0, 0, 2, 2);
  REQUIRE(batch.document_starts.shape() == Shape{2, 4});
  REQUIRE(batch.document_starts.device().is_cpu());
  REQUIRE(batch.document_starts.to_vector<std::int32_t>() == Tokens{0, 0, 2, 2, 0, 1, 1, 1});
  const TokenLoader without(TokenFile(folder / "t.bin"), 4, SampleOrder::sequential, 0);
  REQUIRE_FALSE(without.load(0, 0, 2, 2).document_starts.defined());
}

TEST_CASE("files too short and rows out of range are refused") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const auto load = [&](int count, std::int64_t length) {
    return TokenLoader(counting_file(folder, count), length, SampleOrder::shuffled, 1);
  };
  REQUIRE_THROWS_WITH(load(0, 4), Contains("t.bin holds no tokens"));
  REQUIRE_THROWS_WITH(load(4, 4), Contains("t.bin holds 4 tokens, too few for a sequence of 4") &&
                                      Contains("data.sequence_length"));
  REQUIRE_THROWS_WITH(load(4, 0), Contains("sequence length 0"));
  const TokenLoader loader = load(100, 4);
  REQUIRE_THROWS_AS(loader.load(0, 6, 3, 8), Error);
  REQUIRE_THROWS_AS(loader.load(-1, 0, 1, 8), Error);
  REQUIRE_THROWS_AS(loader.load(0, -1, 1, 8), Error);
}

TEST_CASE("rows of a corpus larger than memory take memory for rows alone") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  constexpr std::int64_t kTokens = (std::int64_t{1} << 32) + 12345;
  write_token_file(folder / "t.bin", std::vector<TokenId>{});
  std::fstream header(folder / "t.bin", std::ios::binary | std::ios::in | std::ios::out);
  const std::array<std::int32_t, 2> count = {kTokens & 0x7fffffff, kTokens >> 31};
  header.seekp(8);
  header.write(reinterpret_cast<const char*>(count.data()), sizeof(count));
  header.close();
  std::filesystem::resize_file(folder / "t.bin", 1024 + 2 * kTokens);  // sparse: it takes no disk
  const TokenLoader loader(TokenFile(folder / "t.bin"), 1024, SampleOrder::shuffled, 1);
  REQUIRE(loader.samples() == kTokens / 1024 - 1);
  const auto peak_kb = [] {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
      if (word == "VmHWM:") break;
    }
    std::int64_t peak = 0;
    status >> peak;
    return peak;
  };
  const std::int64_t before = peak_kb();
  for (std::int64_t step = 0; step < 2000; ++step) {
    loader.load(step * 997, 0, 4, 4);  // far into the next epochs
  }
  CHECK(peak_kb() - before < 32 * 1024);
}

}  // namespace tessera
