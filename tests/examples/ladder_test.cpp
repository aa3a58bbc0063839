// The rungs of the ladder find the losses of the strategies that they explain, and send their bytes.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "examples/ladder/dense.h"
#include "examples/ladder/ladder.h"
#include "optim/shards.h"
#include "sharding/strategy/strategy.h"
#include "tests/support/paths.h"

namespace tessera::ladder {
namespace {

/// The work of a rung, done by the sharding layer.
template <StrategyKind kind, bool expert_parallel = false>
class Reference final : public Rung {
 public:
  using Rung::Rung;

 private:
  void prepare() override {
    const ShardingOptions options = {.strategy = kind,
                                     .expert_parallel = expert_parallel ? ranks_ : 1};
    strategy_ = make_strategy(units(), options, kSeed, &world_);
    optimizer_.emplace(shards_for_optimizer(strategy_->shards()), kAdamW);
  }

  void step(int step) override {
    Step sharded = strategy_->start_step();
    backward(loss(step, rank_));
    sharded.finish_micro_batch();
    sharded.update([&] { optimizer_->step(kLearningRate); });
  }

  std::unique_ptr<Strategy> strategy_;
  std::optional<AdamW> optimizer_;
};

/// The line that a rung prints.
std::string line_of(const std::string& rung, int ranks, const std::string& option = "") {
  const std::string command =
      fmt::format(TESSERA_BINARY_DIR "/bin/ladder/{} {} {} 2>&1", rung, ranks, option);
  FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 256> buffer{};
  std::string output;
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) output += buffer.data();
  CHECK(pclose(pipe) == 0);
  return output;
}

/// The book has the lines of all rungs on two ranks, which have one hash.
template <typename T>
void check_rung(const std::string& rung, bool sends = true, const std::vector<int>& sizes = {4}) {
  for (const int ranks : sizes) {
    const Outcome reference = run(ranks, ranks, make_rung<T>());
    const std::int64_t bytes = sends ? reference.bytes_per_step : 0;
    const std::string expected = fmt::format("  {:016x}  sent {:7}  ", reference.hash(), bytes);
    const std::string line = line_of(rung, ranks);
    INFO(rung << " on " << ranks << " ranks prints " << line << "expected " << expected);
    CHECK(line.find(expected) != std::string::npos);
  }
}

TEST_CASE("every rung of the ladder has its strategy's losses, bit for bit, and its bytes",
          "[cpu]") {
  check_rung<Reference<StrategyKind::ddp>>("1_single", /*sends=*/false);
  check_rung<Reference<StrategyKind::ddp>>("2_ddp");
  check_rung<Reference<StrategyKind::ddp>>("3_ddp_overlapped");
  check_rung<Reference<StrategyKind::zero1>>("4_zero1");
  check_rung<Reference<StrategyKind::zero2>>("5_zero2");
  check_rung<Reference<StrategyKind::zero3>>("6_zero3_prefetch");
  check_rung<Reference<StrategyKind::fsdp>>("7_fsdp", /*sends=*/true, {2, 4});
  check_rung<Reference<StrategyKind::hsdp>>("8_hsdp");
  check_rung<Reference<StrategyKind::ddp, true>>("9_expert_parallel");
}

TEST_CASE("ZeRO-3 without a prefetch broadcasts each unit twice and reduces it once", "[cpu]") {
  constexpr std::int64_t kModelBytes = 198464 * 4;
  for (const int ranks : {2, 4}) {
    const Outcome reference = run(ranks, ranks, make_rung<Reference<StrategyKind::zero3>>());
    // A reduce is a reduce-scatter, after which each rank sends its part to the owner.
    const std::int64_t bytes = (ranks - 1) * (3 * kModelBytes + kModelBytes / ranks);
    const std::string expected = fmt::format("  {:016x}  sent {:7}  ", reference.hash(), bytes);
    CHECK_THAT(line_of("6_zero3", ranks), Catch::Contains(expected));
  }
}

TEST_CASE("a pipeline has the losses of one rank, and sends activations there and gradients back",
          "[cpu]") {
  for (const int ranks : {2, 4}) {
    const Outcome reference = run(ranks, ranks, make_rung<Reference<StrategyKind::ddp>>());
    const std::int64_t bytes = 2 * (ranks - 1) * ranks * kTokens * kWidth * 4;
    const std::string expected = fmt::format("  {:016x}  sent {:7}  ", reference.hash(), bytes);
    CHECK_THAT(line_of("12_pipeline", ranks), Catch::Contains(expected));
  }
}

/// The elements of the dense model that a rank of tensor parallelism shares with others, and the rest.
constexpr std::int64_t kSliced = kBlocks * kSlices * (4 * kHeadSize + 3 * kInner) * kWidth;
constexpr std::int64_t kWhole = (2 * kVocabulary + 2 * kBlocks + 1) * kWidth;

/// Checks a rung of the dense model against 1_dense, and its bytes: those sent by all ranks in a step, and those
/// that a rank holds between steps, with 16 for each element.
void check_dense_rung(const std::string& rung, int ranks, std::int64_t sent,
                      std::int64_t elements) {
  const std::string reference = line_of("1_dense", ranks);
  const std::size_t hash = reference.find("  sent");
  REQUIRE(hash != std::string::npos);
  const std::string expected = fmt::format("{}  sent {:7}  held {:7}\n",
                                           reference.substr(hash - 16, 16), sent, 16 * elements);
  CHECK_THAT(line_of(rung, ranks, "--state"), Catch::Contains(expected));
}

TEST_CASE("one rank holds all of the dense model", "[cpu]") {
  for (const int ranks : {2, 4}) check_dense_rung("1_dense", ranks, 0, kSliced + kWhole);
}

TEST_CASE(
    "tensor parallelism has the losses of one rank, gathers before each layer and adds after it",
    "[cpu]") {
  for (const std::int64_t ranks : {2, 4}) {
    // A batch has a row per rank.
    const std::int64_t activation = ranks * kTokens * kWidth;
    // Attention and the feed-forward layer: a gather and a sum, in forward and in backward.
    const std::int64_t layers = kBlocks * 2 * 2 * 2 * activation;
    const std::int64_t sums = 2 * (kWhole + ranks);
    check_dense_rung("10_tensor", static_cast<int>(ranks), (ranks - 1) * (layers + sums) * 4,
                     kSliced / ranks + kWhole);
  }
}

TEST_CASE("context parallelism has the losses of one rank, and gathers keys and values", "[cpu]") {
  for (const std::int64_t ranks : {2, 4}) {
    const std::int64_t keys = ranks * kTokens * kWidth;
    const std::int64_t attention = kBlocks * 2 * 2 * keys;
    const std::int64_t sums = 2 * (kSliced + kWhole + ranks);
    check_dense_rung("11_context", static_cast<int>(ranks), (ranks - 1) * (attention + sums) * 4,
                     kSliced + kWhole);
  }
}

TEST_CASE("all strategies behind the rungs have one hash of their losses", "[cpu]") {
  for (const int ranks : {2, 4}) {
    const std::uint64_t hash = run(ranks, ranks, make_rung<Reference<StrategyKind::ddp>>()).hash();
    CHECK(run(ranks, ranks, make_rung<Reference<StrategyKind::zero3>>()).hash() == hash);
    CHECK(run(ranks, ranks, make_rung<Reference<StrategyKind::hsdp>>()).hash() == hash);
  }
}

TEST_CASE("a rung is a file of at most 120 lines", "[cpu]") {
  for (const char* rung : {"1_single", "1_dense", "2_ddp", "3_ddp_overlapped", "4_zero1", "5_zero2",
                           "6_zero3", "6_zero3_prefetch", "7_fsdp", "8_hsdp", "9_expert_parallel",
                           "10_tensor", "11_context", "12_pipeline"}) {
    std::ifstream file(fmt::format(TESSERA_SOURCE_DIR "/examples/ladder/{}.cpp", rung));
    REQUIRE(file.is_open());
    int lines = 0;
    for (std::string line; std::getline(file, line);) ++lines;
    INFO(rung);
    CHECK(lines > 0);
    CHECK(lines <= 120);
  }
}

TEST_CASE("a rung takes two or four ranks", "[cpu]") {
  const std::string command = TESSERA_BINARY_DIR "/bin/ladder/7_fsdp 3 >/dev/null 2>&1";
  CHECK(std::system(command.c_str()) != 0);
}

}  // namespace
}  // namespace tessera::ladder
