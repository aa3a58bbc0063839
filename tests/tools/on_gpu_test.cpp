// tools/bench/on_gpu.sh and on_gpus.sh with stand-ins for the programs that only print their arguments.
#include <fmt/format.h>

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

/// on_gpus.sh on a machine whose nvidia-smi lists so many GPUs. `libraries`: of tessera.
ShellOutcome on_gpus(const test::TemporaryDirectory& folder, int gpus, const std::string& parts,
                     const std::string& libraries = "libnccl.so.2") {
  std::string list = "[[ $1 == --list-gpus ]] || { echo 'NVIDIA H200, 580'; exit; }\n";
  for (int i = 0; i < gpus; ++i) list += fmt::format("echo 'GPU {}: NVIDIA H200'\n", i);
  make_program(folder / "nvidia-smi", list);
  make_program(folder / "ldd", "echo " + libraries);
  return test::shell("unset CUDA_VISIBLE_DEVICES; PATH=" + std::string(folder / "") +
                         ":$PATH PYTHON=/bin/false " TESSERA_SOURCE_DIR "/tools/bench/on_gpus.sh " +
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
             Contains("runtime.graph=true") && Contains("kernels.cublaslt=measured") &&
                 Contains("step_gpt2-xl_early.json kernels.early_launch=true"));
  CHECK_THAT(read_text_file(folder / "out/step_choices.log"),
             Contains("step_llama3.2-1b_separate.json kernels.swiglu=separate") &&
                 !Contains("step_gpt2_separate.json"));
  CHECK_THAT(read_text_file(folder / "out/step_choices.log"),
             Contains("step_gpt2_own_gelu.json kernels.gelu=own") &&
                 !Contains("step_llama3.2-1b_own_gelu.json"));
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

TEST_CASE("on_gpus.sh: tells in a line why it does not run") {
  const test::TemporaryDirectory folder;
  make_build(folder);
  const ShellOutcome one = on_gpus(folder, 1, "");
  CHECK(one.status == 77);
  CHECK(one.text() == "on_gpus.sh needs 2 GPUs, and this machine shows 1: on_gpu.sh is for one\n");
  const ShellOutcome without = on_gpus(folder, 2, "", "libc.so.6");
  CHECK(without.status == 77);
  CHECK_THAT(without.text(), Contains("has no NCCL: install libnccl-dev"));
  CHECK_THAT(without.text(), !Contains("bits"));
}

TEST_CASE("on_gpus.sh: correctness comes first, graphs last, and every part has the ranks") {
  const test::TemporaryDirectory folder;
  make_build(folder);
  for (const char* name : {"test_sharding", "tessera"}) {
    make_program(folder / "build/bin" / name, "echo \"$(basename $0) $*\"");
  }
  const ShellOutcome outcome = on_gpus(folder, 6, "");
  const std::string text = outcome.text();
  INFO(text);
  CHECK(outcome.status == 0);
  CHECK_THAT(text, Contains("4 GPUs\n"));  // a power of two
  std::size_t last = 0;
  for (const std::string part : {"bits", "bits_ranks", "bits_cuts", "tests", "collectives",
                                 "strategies", "ctas", "windows", "prediction", "torch", "graph"}) {
    const std::size_t place = text.find("\n" + part + " ");
    INFO(part);
    REQUIRE(place != text.npos);
    CHECK(place >= last);
    last = place;
  }
  CHECK_THAT(text, Contains("skipped: bits_tiny.json is not there") &&
                       Contains("skipped: no PyTorch that finds a GPU"));
  const auto log = [&](const char* name) { return read_text_file(folder / "out" / name); };
  CHECK_THAT(log("bits.log"), Contains("--ranks 4") && Contains("--model gpt2"));
  CHECK_THAT(log("bits_ranks.log"), Contains("train.elastic=4 --rows fsdp; fsdp ranks=2; fsdp ra"));
  CHECK_THAT(log("collectives.log"), Contains("--ranks 2") && Contains("--ranks 4"));
  CHECK_THAT(log("strategies.log"), Contains("--any-order --model llama3.2-1b"));
  CHECK_THAT(log("ctas.log"), Contains("sharding.nccl_ctas=32"));
  CHECK_THAT(log("windows.log"), Contains("sharding.nccl_windows=true"));
  CHECK_THAT(log("prediction.log"), Contains("plan gpt2-xl --ranks 4 --machine h200-sustained"));
  CHECK_THAT(log("graph.log"), Contains("fsdp graph=true"));
}

}  // namespace tessera
