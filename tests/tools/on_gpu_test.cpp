// tools/bench/on_gpu.sh with stand-ins for the programs that only print their arguments.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/tools/shell.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::ShellOutcome;

void make_program(const std::filesystem::path& path, const std::string& body) {
  write_file_atomically(path, "#!/bin/bash\n" + body + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

/// A build folder of stand-ins.
void make_build(const test::TemporaryDirectory& folder) {
  const std::filesystem::path bin = folder / "build/bin";
  std::filesystem::create_directories(bin);
  const auto program = [&](const std::string& name, const std::string& body) {
    make_program(bin / name, body);
  };
  for (const char* name : {"test_kernels_a", "test_kernels_b", "test_runtime_c", "bench_step",
                           "bench_strategies", "bench_collectives"}) {
    program(name, "echo \"$(basename $0) $*\"");
  }
  program("test_kernels_b", "echo wrong; exit 3");
  program("bench_kernels", "echo '[]' > ${@: -1}");
}

ShellOutcome on_gpu(const test::TemporaryDirectory& folder, const std::string& parts,
                    const std::string& variables = "") {
  return test::shell(variables + "PYTHON=/bin/false " TESSERA_SOURCE_DIR "/tools/bench/on_gpu.sh " +
                         std::string(folder / "build") + " " + std::string(folder / "out") + " " +
                         parts,
                     folder);
}

}  // namespace

TEST_CASE("on_gpu.sh: names failed parts, skips parts with missing tools, runs the rest") {
  const test::TemporaryDirectory folder;
  make_build(folder);
  const ShellOutcome outcome =
      on_gpu(folder, "kernel_tests tests kernels step step_choices torch_step strategies nccl");
  const std::string text = outcome.text();
  INFO(text);
  CHECK(outcome.status == 1);
  CHECK_THAT(text,
             Contains("kernel_tests ") && Contains("FAILED with 1: failed: test_kernels_b\n"));
  CHECK_THAT(text, Contains("skipped: no PyTorch that finds a GPU") && Contains("nccl "));
  CHECK_THAT(text, !Contains("memcheck"));
  CHECK(read_text_file(folder / "out/summary.txt") == text);
  CHECK_THAT(read_text_file(folder / "out/kernel_tests.log"),
             Contains("test_kernels_a ~[") && !Contains("test_runtime_c"));
  CHECK_THAT(read_text_file(folder / "out/tests.log"), Contains("test_runtime_c ~["));
  CHECK_THAT(read_text_file(folder / "out/step.log"),
             Contains("--model gpt2-xl --batch 4 ") && Contains("--attention cudnn"));
  CHECK_THAT(read_text_file(folder / "out/step_choices.log"),
             Contains("runtime.graph=true") && Contains("kernels.cublaslt=measured"));
  CHECK_THAT(read_text_file(folder / "out/step_choices.log"),
             Contains("step_llama3.2-1b_separate.json kernels.swiglu=separate") &&
                 !Contains("step_gpt2_separate.json"));
  CHECK(read_text_file(folder / "out/kernels.json") == "[]\n");
}

TEST_CASE(
    "on_gpu.sh: a part has samples of the GPU's clock and power, and none of the next part's") {
  const test::TemporaryDirectory folder;
  make_build(folder);
  const std::string asked = folder / "asked";
  make_program(folder / "nvidia-smi",
               "[[ $* == *--loop-ms=100* ]] || { echo 'NVIDIA H200, 580'; exit; }\n"
               "echo $$ \"$@\" >> " +
                   asked + "\necho '1635, 698.5, 0x0000000000000004, 2619, 60'\nexec sleep 600");
  make_program(folder / "build/bin/bench_collectives",
               "until [[ -s " + std::string(folder / "out/collectives.gpu.csv") +
                   " ]]; do sleep 0.01; done");
  const std::string path = "CUDA_VISIBLE_DEVICES=5,6 PATH=" + std::string(folder / "") + ":$PATH ";
  CHECK_THAT(on_gpu(folder, "collectives", path).text(), Contains("NVIDIA H200"));
  CHECK(read_text_file(folder / "out/collectives.gpu.csv") ==
        "1635, 698.5, 0x0000000000000004, 2619, 60\n");
  const std::string line = read_text_file(asked);
  CHECK_THAT(line, Contains("--id=5 ") && Contains("clocks_event_reasons.active"));
  CHECK_FALSE(std::filesystem::exists("/proc/" + line.substr(0, line.find(' '))));
}

TEST_CASE("on_gpu.sh: without folders it prints its usage") {
  const test::TemporaryDirectory folder;
  CHECK(test::shell(TESSERA_SOURCE_DIR "/tools/bench/on_gpu.sh", folder).status == 2);
}

}  // namespace tessera
