// runtime.isa: a training run in f32 has the same bits on every instruction set.
#include <catch2/catch.hpp>
#include <vector>

#include "kernels/matmul/options.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/rank.h"
#include "tools/bench/workload.h"
#include "tools/config/kernel_options.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

/// A run's losses, norms of gradients and, at the end, weights.
struct Run {
  std::vector<float> losses, weights;
  std::vector<double> norms;
};

Run train(const std::string& preset, const std::string& isa, int threads) {
  // With 600 tokens the sums of the weights' gradients are cut into pieces.
  const std::string rows = preset == "gpt2-mini" ? "15" : "4";
  std::vector<std::string> keys = {
      "data.batch_size=" + rows, "data.sequence_length=40", "model.layers=1",
      "model.heads=2",           "model.width=20",          "model.context=40",
      "model.vocab_size=101",    "runtime.isa=" + isa,      "runtime.device=cpu",
      "train.steps=20",          "optimizer.warmup_steps=2"};
  if (preset != "gpt2-mini") keys.push_back("model.kv_heads=1");
  const ResolvedConfig resolved = resolve(workload(preset, keys));
  Run run;
  run_ranks({.device = Device{}, .threads = threads}, [&](Communicator& world) {
    choose_kernels(resolved.config);
    CHECK(matmul_options().isa == enum_from_name<cpu::Isa>(isa));
    TrainingSession session(resolved, world);
    const BatchSource tokens = random_tokens(resolved.config.data, 101);
    for (int step = 1; step <= 20; ++step) {
      const StepResult result = session.step(step, tokens);
      run.losses.push_back(result.loss);
      run.norms.push_back(result.gradient_norm);
    }
    for (const Shard& shard : session.strategy().shards()) {
      const auto values = shard.data.to_vector<float>();
      run.weights.insert(run.weights.end(), values.begin(), values.end());
    }
  });
  return run;
}

}  // namespace

TEST_CASE("runtime.isa: 20 steps in f32 have equal losses, norms and weights at every level",
          "[cpu]") {
  for (const std::string preset : {"gpt2-mini", "llama3-mini", "qwen3-moe-mini"}) {
    const Run expected = train(preset, "portable", 1);
    CHECK(expected.losses.back() != expected.losses.front());
    for (const cpu::Isa isa : cpu::available_isas()) {
      if (isa == cpu::Isa::portable) continue;
      CAPTURE(preset, enum_name(isa));
      const Run run = train(preset, std::string(enum_name(isa)), 2);
      CHECK(run.losses == expected.losses);
      CHECK(run.norms == expected.norms);
      CHECK((run.weights == expected.weights));  // not printed: there are many
    }
  }
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
  CHECK_NOTHROW(choose_kernels(config, cpu::Isa::avx2));
  CHECK(matmul_options().isa == cpu::Isa::avx2);
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
