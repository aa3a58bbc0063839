// A program that has too little memory names settings that need less, and they fit.
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "runtime/file.h"
#include "runtime/out_of_memory.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/child.h"
#include "tests/support/paths.h"
#include "tests/tools/tiny_run.h"
#include "tools/bench/compare.h"
#include "tools/config/parse.h"
#include "tools/eval/evaluate.h"
#include "tools/generate/generate.h"
#include "tools/generate/score.h"
#include "tools/measure/compute_rates.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;

/// Leaves room for `bytes` more of memory that can be written. Dry runs write to none.
void limit_memory(rlim_t bytes) {
  std::ifstream statm("/proc/self/statm");
  rlim_t data = 0;
  for (int field = 1; field <= 6; ++field) statm >> data;  // the sixth: data and stack, in pages
  const rlim_t bound = data * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit limit{bound, bound};
  if (setrlimit(RLIMIT_DATA, &limit) != 0) std::perror("setrlimit");
}

/// The output of a process that calls `body` with room for so many MiB: the error, or "done".
std::string in_little_memory(int mebibytes, const std::function<void()>& body) {
  return test::run_child([&] {
           limit_memory(static_cast<rlim_t>(mebibytes) << 20);
           try {
             body();
             std::puts("done");
           } catch (const Error& error) {
             std::puts(error.what());
           }
           std::fflush(stdout);
         })
      .output;
}

/// A step of 224 MiB.
Config large_run(const test::TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.data.batch_size = 1024;
  config.model.width = 64;
  config.train.steps = config.optimizer.warmup_steps = 1;
  config.train.eval_every = 0;
  config.train.progress = ProgressMode::lines;
  config.runtime.threads = 1;
  return config;
}

/// The number after data.accumulation_steps= in the line of an error. It must be the advice.
std::int64_t advised_accumulation(const std::string& output) {
  INFO(output);
  REQUIRE_THAT(output, Contains("out of memory on cpu") && Contains("MiB these settings fit: "));
  const std::string line = output.substr(output.find("out of memory"));
  CHECK(line.find('\n') == line.size() - 1);
  CHECK_THAT(line, !Contains(OutOfMemory::kGeneralAdvice));
  const std::string key = "data.accumulation_steps=";
  const std::size_t at = output.find(key);
  REQUIRE(at != std::string::npos);
  return std::stoll(output.substr(at + key.size()));
}

/// 16 texts from one model of 26 MB. Their keys and values are 64 KiB a token, 16 MiB per 16.
GenerateOptions many_texts(const test::TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.model = {.preset = "gpt2-mini", .layers = 8, .heads = 4, .width = 256, .context = 2048};
  config.train.steps = config.optimizer.warmup_steps = 1;
  config.train.eval_every = 0;
  // In a process of its own: free memory of this one would be the children's.
  REQUIRE_FALSE(test::run_child([&] { train(config); }).failed());
  GenerateOptions options;
  options.model = config.train.dir;
  options.prompts.assign(16, {.text = {}, .ids = {1, 2, 3}});
  options.tokens = 2000;
  options.device = "cpu";
  options.threads = 1;
  return options;
}

const std::string kForWeights =
    "choose --dtype bf16 or more ranks, each with memory of its own (--ranks)\n";

}  // namespace

TEST_CASE("a run without enough memory says in one line which settings fit, and they do", "[cpu]") {
  const test::TemporaryDirectory folder;
  Config config = large_run(folder);
  const auto output = [&] { return in_little_memory(150, [&] { train(config); }); };
  config.data.accumulation_steps = advised_accumulation(output());
  REQUIRE(config.data.accumulation_steps > 1);
  CHECK_THAT(output(), Contains("done"));
}

TEST_CASE("benchmarks that train without enough memory say which settings fit, and they do",
          "[cpu]") {
  const test::TemporaryDirectory folder;
  Config config = large_run(folder);
  config.model.vocab_size = 64;
  config.sharding.strategy = StrategyKind::single;
  const auto measure_rates = [&] { measure_compute(resolve(config), {.ranks = 1, .steps = 1}); };
  const auto compare_strategies = [&] {
    run_ranks({.threads = 1}, [&](Communicator& world) {
      compare_rows({.rows = {{.name = "single", .config = config}}, .steps = 1}, world);
    });
  };
  for (const std::function<void()>& benchmark :
       {std::function<void()>(measure_rates), std::function<void()>(compare_strategies)}) {
    config.data.accumulation_steps = 1;
    config.data.accumulation_steps = advised_accumulation(in_little_memory(150, benchmark));
    REQUIRE(config.data.accumulation_steps > 1);
    CHECK_THAT(in_little_memory(150, benchmark), Contains("done"));
  }
}

TEST_CASE("bench_step without enough memory names settings that fit", "[cpu]") {
  const test::TemporaryDirectory folder;
  const std::string line =
      "ulimit -d 600000; " TESSERA_BINARY_DIR
      "/bin/bench_step --device cpu --threads 1 --steps 1 --batch 2048 --model tiny "
      "model.width=96 2>" +
      (folder / "err.txt").string();
  CHECK(std::system(line.c_str()) != 0);
  CHECK(advised_accumulation(read_text_file(folder / "err.txt")) > 1);
}

TEST_CASE("generate without enough memory advises less work, and without room for weights does not",
          "[cpu]") {
  const test::TemporaryDirectory folder;
  GenerateOptions options = many_texts(folder);
  const auto output = [&](int mebibytes) {
    return in_little_memory(mebibytes, [&] { generate(options, {}); });
  };
  CHECK_THAT(output(10), Contains("requested as parameters") && Contains("; " + kForWeights));
  CHECK_THAT(
      output(200),
      Contains("; choose a smaller --batch or fewer --tokens or --dtype bf16 or more ranks"));
  options.batch = 1;
  options.prompts.resize(1);
  options.tokens = 5;
  CHECK_THAT(output(200), Contains("done"));
}

TEST_CASE("score and eval without enough memory advise what needs less", "[cpu]") {
  const test::TemporaryDirectory folder;
  InferenceOptions options = {.model = many_texts(folder).model, .device = "cpu", .threads = 1};
  // 4,096 tokens at a time.
  const std::vector<std::vector<std::int32_t>> rows(64, std::vector<std::int32_t>(65, 1));
  const auto score_rows = [&] { score(options, rows); };
  const auto evaluate_rows = [&] { evaluate(EvaluateOptions{options}); };
  for (const std::string& output :
       {in_little_memory(60, score_rows), in_little_memory(60, evaluate_rows)}) {
    CHECK_THAT(output, Contains("requested as activations") && Contains("; " + kForWeights));
  }
  options.dtype = DType::bf16;
  CHECK_THAT(in_little_memory(20, score_rows), Contains("; choose more ranks"));
}

}  // namespace tessera
