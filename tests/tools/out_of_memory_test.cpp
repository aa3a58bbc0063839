// A run that has too little memory says which settings fit, and they do.
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/support/child.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
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

/// What a process prints that trains with room for 300 MiB: the error, or "done".
std::string train_in_little_memory(const Config& config) {
  return test::run_child([&] {
           limit_memory(rlim_t{300} << 20);
           try {
             train(config);
             std::puts("done");
           } catch (const Error& error) {
             std::puts(error.what());
           }
           std::fflush(stdout);
         })
      .output;
}

/// A step of 448 MiB.
Config large_run(const test::TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.data.batch_size = 2048;
  config.model.width = 64;
  config.train.steps = config.optimizer.warmup_steps = 1;
  config.train.eval_every = 0;
  config.train.progress = ProgressMode::lines;
  config.runtime.threads = 1;
  return config;
}

}  // namespace

TEST_CASE("a run without enough memory says in one line which settings fit, and they do", "[cpu]") {
  const test::TemporaryDirectory folder;
  Config config = large_run(folder);
  const std::string output = train_in_little_memory(config);
  INFO(output);
  REQUIRE_THAT(output, Contains("out of memory on cpu") && Contains("MiB these settings fit: "));
  const std::string line = output.substr(output.find("out of memory"));
  CHECK(line.find('\n') == line.size() - 1);
  const std::string key = "data.accumulation_steps=";
  const std::size_t at = output.find(key);
  REQUIRE(at != std::string::npos);
  config.data.accumulation_steps = std::stoll(output.substr(at + key.size()));
  REQUIRE(config.data.accumulation_steps > 1);
  CHECK_THAT(train_in_little_memory(config), Contains("done"));
}

}  // namespace tessera
