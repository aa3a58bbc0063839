// Advice on memory: it fits, and the next larger choice does not.
#include "tools/plan/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "sharding/plan/nccl_memory.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/figures.h"

namespace tessera {
namespace {

constexpr int kRanks = 2;

Config small() {
  Config config;
  config.model = {
      .preset = "gpt2-mini", .layers = 2, .heads = 4, .width = 64, .context = 32, .vocab_size = 64};
  config.data = {.batch_size = 16, .sequence_length = 32};
  config.runtime.threads = 1;
  return variant_of(config, "ddp");
}

std::int64_t peak_of(const Config& config) {
  return plan_figures(config, {.ranks = kRanks}).figures.peak();
}

MemoryAdvice advice(std::int64_t bytes, std::optional<MachineRates> machine = {}) {
  return memory_advice(small(), {.ranks = kRanks, .machine = std::move(machine)}, bytes);
}

/// The same for ranks on CPUs.
MemoryAdvice advice_on_cpus(std::int64_t bytes) {
  return memory_advice(small(), {.ranks = kRanks, .on_gpus = false}, bytes);
}

bool offloads(const Fit& fit) {
  return std::any_of(fit.keys.begin(), fit.keys.end(),
                     [](const std::string& key) { return key.starts_with("sharding.offload="); });
}

/// The peak of a rank under fsdp, with one row in a micro-batch and all blocks checkpointed.
std::int64_t least_peak() {
  Config config = variant_of(small(), "fsdp");
  config.data.accumulation_steps = 8;
  config.sharding.activation_checkpointing = {.first = 0, .every = 1};
  return peak_of(config);
}

TEST_CASE("advice: the largest micro-batch fits, and one row more does not") {
  for (const std::int64_t bytes : {std::int64_t{4} << 20, std::int64_t{7} << 20}) {
    const MemoryAdvice found = advice(bytes);
    Config config = small();
    config.data.batch_size = found.most_rows * kRanks;
    CHECK(peak_of(config) == found.peak_of_most_rows);
    CHECK(found.peak_of_most_rows <= bytes);
    config.data.batch_size += kRanks;
    CHECK(peak_of(config) > bytes);
  }
}

TEST_CASE("advice: a run that fits stays as it is, one that does not gets smaller micro-batches") {
  const std::int64_t peak = peak_of(small());
  const MemoryAdvice fits = advice(peak);
  CHECK(fits.peak == peak);
  REQUIRE(!fits.fits.empty());
  CHECK(fits.fits[0].keys.empty());
  const MemoryAdvice less = advice(peak - 1);
  REQUIRE(!less.fits.empty());
  CHECK(less.fits[0].keys == std::vector<std::string>{"data.accumulation_steps=2"});
  Config halved = small();
  halved.data.accumulation_steps = 2;
  CHECK(less.fits[0].peak == peak_of(halved));
  CHECK_THAT(advice_text(less, peak - 1), Catch::Contains("which is too much") &&
                                              Catch::Contains("data.accumulation_steps=2: "));
}

TEST_CASE("advice: NCCL's buffers are a part of a GPU's memory, and of no CPU's") {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  Config config = small();
  const auto part = [&](std::int64_t memory) {
    return nccl_part_of(memory, config, {.ranks = kRanks});
  };
  const std::int64_t nccl = most_nccl_bytes({.axes = {{"replica", kRanks}}}, {.ctas = 16});
  CHECK(part(std::int64_t{80} << 30) == nccl);
  CHECK_THROWS_WITH(part(8 * kMiB), Catch::Contains("--memory 8.00 MiB: NCCL's buffers may take") &&
                                        Catch::Contains("runtime.device=cpu"));
  config.sharding.nccl_ctas = 8;
  CHECK(part(std::int64_t{80} << 30) == nccl / 2);
  CHECK(nccl_part_of(8 * kMiB, config, {.ranks = 1}) == 0);
  CHECK_THAT(plan(config, {.ranks = kRanks}),
             Catch::Contains(fmt::format("NCCL's buffers: at most {} MiB", nccl / 2 / kMiB)));
  config.sharding.deterministic = true;  // messages have buffers of their own
  CHECK(part(std::int64_t{80} << 30) > nccl / 2);
  const std::int64_t messages = part(std::int64_t{80} << 30);
  config.sharding.nccl_windows = true;  // at least one, the flags, and 1 MiB for each rank
  CHECK(part(std::int64_t{80} << 30) >= messages + (2 + 2 + kRanks) * kMiB);
  config.sharding.communicator = CommunicatorKind::mpi;
  CHECK(part(8 * kMiB) == 0);
  config.sharding.communicator = CommunicatorKind::automatic;
  config.runtime.device = Device{};
  CHECK(part(8 * kMiB) == 0);
  CHECK_THAT(plan(config, {.ranks = kRanks}), !Catch::Contains("NCCL's buffers: at most"));
}

TEST_CASE("advice: a head of one chunk, if the logits of a micro-batch fit") {
  Config config = small();
  config.model.vocab_size = 5000;  // the logits are the most
  const std::int64_t tokens = 16 / kRanks * 32;
  const auto found = [&](std::int64_t bytes) {
    return memory_advice(config, {.ranks = kRanks}, bytes);
  };
  CHECK(found(std::int64_t{1} << 30).head_chunk == 0);  // it has one chunk
  Config whole = config;
  whole.kernels.head_chunk = tokens;
  config.kernels.head_chunk = tokens / 4;
  const std::int64_t peak = peak_of(whole);
  CHECK(peak > peak_of(config));
  CHECK(found(peak).head_chunk == tokens);
  CHECK(found(peak).peak_of_head_chunk == peak);
  CHECK_THAT(advice_text(found(peak), peak), Catch::Contains("kernels.head_chunk=256 fits: "));
  CHECK(found(peak - 1).head_chunk == 0);
}

TEST_CASE("advice: a small memory needs another strategy, and too small a one more ranks") {
  const std::int64_t least = least_peak();
  const MemoryAdvice found = advice_on_cpus(least);
  REQUIRE(!found.fits.empty());
  for (const Fit& fit : found.fits) {
    CHECK(fit.peak <= least);
    CHECK_THAT(fit.keys.at(0), Catch::StartsWith("sharding.strategy=z") ||
                                   Catch::StartsWith("sharding.strategy=fsdp"));
  }
  const MemoryAdvice none = advice_on_cpus(least / 2);
  CHECK(none.fits.empty());
  CHECK(none.most_rows == 0);
  CHECK_THAT(advice_text(none, least / 2),
             Catch::Contains("take more ranks") && Catch::Contains("not even one row fits"));
}

TEST_CASE("advice: offload comes last, on GPUs alone, and fits where nothing but a cut does") {
  std::int64_t bytes = least_peak();
  while (!offloads(advice(bytes).fits.at(0))) {
    const MemoryAdvice found = advice(bytes);
    CHECK(std::is_sorted(found.fits.begin(), found.fits.end(),
                         [](const Fit& a, const Fit& b) { return !offloads(a) && offloads(b); }));
    bytes = found.fits[0].peak - 1;
  }
  const Fit fit = advice(bytes).fits[0];
  CHECK(fit.peak <= bytes);
  const auto are_cuts = [](const MemoryAdvice& found) {
    return std::all_of(found.fits.begin(), found.fits.end(), [](const Fit& one) {
      return one.keys.at(0).find("_parallel=") != std::string::npos;
    });
  };
  CHECK(are_cuts(advice_on_cpus(bytes)));
  const MachineRates no_host = {.name = "no host",
                                .compute = {{.forward = 1e9, .backward = 1e9, .memory = 1e9}},
                                .links = {{.bandwidth = 1e9}}};
  CHECK(are_cuts(advice(bytes, no_host)));
  MachineRates slow_host = no_host;
  slow_host.host = HostRates{.link = {.bandwidth = 1e6}, .memory = 1e6};
  CHECK(advice(bytes, slow_host).fits.at(0).step_seconds > 0.0);
  // Where a strategy fits as well, a slow host is no choice.
  CHECK(!offloads(advice(2 * least_peak(), slow_host).fits.at(0)));
}

TEST_CASE("advice: with a machine the change with the shortest step comes first") {
  const MachineRates slow_to_compute = {
      .name = "slow",
      .compute = {{.forward = 1e6, .backward = 1e6, .memory = 1e9}},
      .links = {{.bandwidth = 1e9}}};
  const MemoryAdvice found = advice(peak_of(small()), slow_to_compute);
  REQUIRE(found.fits.size() > 2);
  for (std::size_t i = 1; i < found.fits.size(); ++i) {
    CHECK(found.fits[i - 1].step_seconds <= found.fits[i].step_seconds);
  }
  // To compute the blocks' forward pass again costs most there.
  for (const std::string& key : found.fits[0].keys) {
    CHECK_THAT(key, !Catch::Contains("checkpointing"));
  }
}

TEST_CASE("advice: sizes of memory are read with their units") {
  CHECK(parse_memory("80GiB") == std::int64_t{80} << 30);
  CHECK(parse_memory("1.5MiB") == 3 << 19);
  CHECK(parse_memory("16GB") == 16'000'000'000);
  for (const char* text : {"", "80", "GiB", "-1GiB", "0GiB", "80 GiB", "1e30GiB"}) {
    CHECK_THROWS_WITH(parse_memory(text), Catch::Contains("expected a size such as 80GiB"));
  }
}

}  // namespace
}  // namespace tessera
