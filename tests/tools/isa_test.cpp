// runtime.isa: a training run in f32 has the same bits on every instruction set.
#include <catch2/catch.hpp>
#include <vector>

#include "kernels/matmul/options.h"
#include "runtime/crc32c.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/rank.h"
#include "tools/config/kernel_options.h"
#include "tools/measure/workload.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

/// A run's losses, norms of gradients and, at the end, a checksum of each weight.
struct Run {
  std::vector<float> losses;
  std::vector<double> norms;
  std::vector<std::uint32_t> weights;
};

using Keys = std::vector<std::string>;

/// A difference of one rounding is in the weights after a single step, and in the next step's loss.
constexpr int kSteps = 4, kStepsOfPresets = 2;

Run train(const std::string& preset, Keys keys, cpu::Isa isa, int threads, int steps) {
  for (const char* key : {"runtime.device=cpu", "train.steps=20", "optimizer.warmup_steps=1"}) {
    keys.push_back(key);
  }
  keys.push_back("runtime.isa=" + std::string(enum_name(isa)));
  const ResolvedConfig resolved = resolve(workload(preset, keys));
  Run run;
  run_ranks({.device = Device{}, .threads = threads}, [&](Communicator& world) {
    choose_kernels(resolved.config);
    CHECK(matmul_options().isa == isa);
    TrainingSession session(resolved, world);
    const BatchSource tokens =
        random_tokens(resolved.config.data, resolved.config.model.vocab_size);
    for (int step = 1; step <= steps; ++step) {
      const StepResult result = session.step(step, tokens);
      run.losses.push_back(result.loss);
      run.norms.push_back(result.gradient_norm);
    }
    for (const Shard& shard : session.strategy().shards()) {
      run.weights.push_back(crc32c({shard.data.raw(), shard.data.bytes()}));
    }
  });
  return run;
}

/// The bits of `lowest`, on one thread, are those of every higher level on two.
void check_levels(const std::string& preset, const Keys& keys, cpu::Isa lowest = cpu::Isa::portable,
                  int steps = kSteps) {
  const Run expected = train(preset, keys, lowest, 1, steps);
  CHECK(expected.losses.back() != expected.losses.front());
  for (const cpu::Isa isa : cpu::available_isas()) {
    if (isa <= lowest) continue;
    CAPTURE(preset, enum_name(isa));
    const Run run = train(preset, keys, isa, 2, steps);
    CHECK(run.losses == expected.losses);
    CHECK(run.norms == expected.norms);
    CHECK(run.weights == expected.weights);
  }
}

/// Presets with all their layers and channels.
void check_presets(cpu::Isa lowest) {
  for (const char* preset : {"gpt2-mini", "llama3-mini", "qwen3-moe-mini"}) {
    check_levels(preset, {"data.batch_size=1", "data.sequence_length=64", "model.vocab_size=257"},
                 lowest, kStepsOfPresets);
  }
}

}  // namespace

TEST_CASE("runtime.isa: four steps in f32 have equal losses, norms and weights at every level",
          "[cpu]") {
  Keys keys = {"data.sequence_length=40", "model.layers=1",   "model.heads=2",
               "model.width=20",          "model.context=40", "model.vocab_size=101"};
  // With 600 tokens the sums of the weights' gradients are cut into pieces.
  keys.push_back("data.batch_size=15");
  check_levels("gpt2-mini", keys);
  keys.back() = "data.batch_size=4";
  keys.push_back("model.kv_heads=1");
  check_levels("llama3-mini", keys);
  check_levels("qwen3-moe-mini", keys);
}

TEST_CASE("runtime.isa: the presets have equal bits at every level with vectors", "[cpu]") {
  const auto isas = cpu::available_isas();
  if (isas.size() > 1) check_presets(isas[1]);
}

// The level `portable` calls a function for each multiplication: test_tools_isa "[.minutes]"
TEST_CASE("runtime.isa: the presets have equal bits at every level", "[.minutes][cpu]") {
  check_presets(cpu::Isa::portable);
}

TEST_CASE("runtime.isa: a level that the CPU lacks is an error, but not in a dry run", "[cpu]") {
  const test::Rank rank;
  Config config;
  config.runtime.isa = cpu::Isa::avx512;
  CHECK_THROWS_WITH(choose_kernels(config, cpu::Isa::avx2),
                    "runtime.isa is avx512, but this CPU's best level is avx2; take that, or auto");
  config.runtime.isa = cpu::Isa::neon;
  CHECK_THROWS_WITH(choose_kernels(config, cpu::Isa::amx),
                    "runtime.isa is neon, but this CPU's best level is amx; take that, or auto");
  config.runtime.isa = cpu::Isa::avx2;
  CHECK_THROWS_WITH(choose_kernels(config, cpu::Isa::neon),
                    "runtime.isa is avx2, but this CPU's best level is neon; take that, or auto");
  RankContext dry({.device = test::device(), .seed = 1, .dry = true});
  const ContextGuard guard(dry);
  CHECK_NOTHROW(choose_kernels(config, cpu::Isa::neon));
  CHECK(matmul_options().isa == cpu::Isa::neon);
}

TEST_CASE("the keys of kernels choose the rank's kernels", "[cpu]") {
  const test::Rank rank;
  Config config;
  choose_kernels(config);
  CHECK(cudnn_order() == CudnnOrder::same);
  CHECK(matmul_options().library == MatmulLibrary::tessera);
  config.kernels = {.cudnn_order = CudnnOrder::any,
                    .matmul = MatmulLibrary::openblas,
                    .cublaslt = AlgorithmChoice::measured};
  choose_kernels(config);
  CHECK(cudnn_order() == CudnnOrder::any);
  CHECK(matmul_options().library == MatmulLibrary::openblas);
  CHECK(matmul_options().choice == AlgorithmChoice::measured);
}

}  // namespace tessera
