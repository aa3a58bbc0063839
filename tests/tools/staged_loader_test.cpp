#include "tools/data/staged_loader.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

constexpr std::int64_t kBatchSize = 4;

TokenLoader loader_of(const test::TemporaryDirectory& folder) {
  std::vector<TokenId> tokens(100);
  std::iota(tokens.begin(), tokens.end(), TokenId{0});
  write_token_file(folder / "t.bin", tokens);
  return TokenLoader(TokenFile(folder / "t.bin"), 3, SampleOrder::shuffled, 1);
}

std::int64_t live_bytes() {
  return context().allocator().account().total.current;
}

bool same_tokens(const Batch& a, const Batch& b) {
  return a.inputs.to_vector<std::int32_t>() == b.inputs.to_vector<std::int32_t>() &&
         a.targets.to_vector<std::int32_t>() == b.targets.to_vector<std::int32_t>();
}

}  // namespace

TEST_CASE("staged rows are handed out once, and then loaded again") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const TokenLoader loader = loader_of(folder);
  StagedLoader staged(loader, kBatchSize);
  staged.stage(5, 1, 2);
  const std::int64_t before = live_bytes();
  const Batch first = staged.load(5, 1, 2);
  CHECK(live_bytes() == before);  // nothing was loaded
  const Batch second = staged.load(5, 1, 2);
  CHECK(live_bytes() > before);
  CHECK(same_tokens(first, loader.load(5, 1, 2, kBatchSize)));
  CHECK(same_tokens(second, first));
}

TEST_CASE("staged rows give way to others that are asked for") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const TokenLoader loader = loader_of(folder);
  StagedLoader staged(loader, kBatchSize);
  const std::int64_t before = live_bytes();
  const auto expect = [&](std::int64_t batch, std::int64_t first_row, std::int64_t rows) {
    CAPTURE(batch, first_row, rows);
    staged.stage(5, 1, 2);
    CHECK(same_tokens(staged.load(batch, first_row, rows),
                      loader.load(batch, first_row, rows, kBatchSize)));
    CHECK(live_bytes() == before);  // the staged rows are gone
  };
  expect(6, 1, 2);  // after a rollback, for example
  expect(5, 2, 2);
  expect(5, 1, 1);
}

}  // namespace tessera
