// The benchmarks from the command line, on small sizes and on the device of this build.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "kernels/matmul/openblas_library.h"
#include "runtime/file.h"
#include "tests/support/device.h"
#include "tests/tools/shell.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::shell;
using test::ShellOutcome;
using test::TemporaryDirectory;

std::string device() {
  return " --device " + to_string(test::device());
}

std::set<std::string> keys_of(const json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

const std::string kQuick = " --models tiny --tokens 16 --runs 1 --flush-mib 1 --threads 1";

}  // namespace

TEST_CASE("bench_kernels: every kernel has a row with a baseline") {
  const TemporaryDirectory folder;
  const std::string file = folder / "rows.json";
  const ShellOutcome outcome =
      shell("bench_kernels" + device() + kQuick + " --dtype bf16 --json " + file, folder);
  INFO(outcome.text());
  REQUIRE(outcome.status == 0);
  std::set<std::string> ops;
  const json report = json::parse(read_text_file(file));
  CHECK(report["program"] == "bench_kernels");
  CHECK(report["device"] == to_string(test::device()));
  for (const json& row : report["kernels"]) {
    CAPTURE(row.dump());
    CHECK(keys_of(row) == std::set<std::string>{"op", "shape", "dtype", "time_ms",
                                                "time_quartiles_ms", "bytes", "flops", "rate",
                                                "baseline", "baseline_quartiles_ms",
                                                "baseline_rate", "ratio"});
    CHECK(row["time_quartiles_ms"][1] == row["time_ms"]);
    CHECK(row["time_quartiles_ms"][0] <= row["time_quartiles_ms"][2]);
    CHECK(row["baseline_quartiles_ms"][0].get<double>() > 0.0);
    // Attention's backward pass has two rows where there is cuDNN.
    CHECK((ops.insert(row["op"]).second || row["baseline"] == "cudnn any order"));
    CHECK(row["dtype"] == "bf16");
    CHECK(row["time_ms"].get<double>() > 0.0);
    CHECK(row["bytes"].get<double>() > 0.0);
    CHECK(row["ratio"].get<double>() > 0.0);
    CHECK(std::isfinite(row["ratio"].get<double>()));
    CHECK((row["flops"].get<double>() > 0.0) == (row["baseline"] != "copy"));
    const double ratio = row["rate"].get<double>() / row["baseline_rate"].get<double>();
    CHECK(row["ratio"].get<double>() == Approx(ratio));
  }
  CHECK(ops == std::set<std::string>{"embedding_forward",
                                     "embedding_backward",
                                     "layer_norm_forward",
                                     "layer_norm_backward",
                                     "add_layer_norm_forward",
                                     "add_layer_norm_backward",
                                     "rms_norm_forward",
                                     "rms_norm_backward",
                                     "add_rms_norm_forward",
                                     "add_rms_norm_backward",
                                     "matmul_forward",
                                     "matmul_dx",
                                     "matmul_dweight",
                                     "matmul_dweight_accumulate",
                                     "linear_bias",
                                     "linear_bias_gelu",
                                     "linear_bias_gelu_own",
                                     "linear_swiglu",
                                     "nf4_unpack",
                                     "linear_dweight_dbias",
                                     "linear_dx_gelu",
                                     "linear_dx_gelu_own",
                                     "linear_dx_swiglu",
                                     "grouped_matmul_8",
                                     "grouped_matmul_dx_8",
                                     "grouped_matmul_dweight_8",
                                     "grouped_gather_8",
                                     "grouped_dx_swiglu_8",
                                     "grouped_matmul_64",
                                     "grouped_matmul_dx_64",
                                     "grouped_matmul_dweight_64",
                                     "grouped_gather_64",
                                     "grouped_dx_swiglu_64",
                                     "rope_forward",
                                     "rope_backward",
                                     "qk_norm_forward",
                                     "qk_norm_backward",
                                     "attention_forward",
                                     "attention_backward",
                                     "attention_decoding",
                                     "attention_packed_forward",
                                     "attention_packed_backward",
                                     "gelu_forward",
                                     "gelu_backward",
                                     "swiglu_forward",
                                     "swiglu_backward",
                                     "bias_backward",
                                     "add",
                                     "dropout",
                                     "cast_to_f32",
                                     "cast_from_f32",
                                     "linear_cross_entropy",
                                     "cross_entropy_chunk",
                                     "cross_entropy_forward",
                                     "cross_entropy_backward",
                                     "adamw",
                                     "adamw_with_copy",
                                     "adamw_bf16",
                                     "gradient_norm"});
}

TEST_CASE("bench_kernels: bytes and operations are the shapes'") {
  const TemporaryDirectory folder;
  const std::string file = folder / "rows.json";
  const auto row = [&](const std::string& op) {
    REQUIRE(
        shell("bench_kernels" + device() + kQuick + " --dtype f32 --op " + op + " --json " + file,
              folder)
            .status == 0);
    return json::parse(read_text_file(file)).at("kernels").at(0);
  };
  // 16 tokens of 32 channels, a feed-forward of 48; 2 heads of 16 on 1, rows of 8 tokens.
  const json norm = row("add_rms_norm_forward");
  CHECK(norm["shape"] == "16 x 32");
  CHECK(norm["bytes"] == 4 * 16 * 32 * 4);
  const json linear = row("linear_bias_gelu");
  CHECK(linear["shape"] == "16 x 48 x 32");
  CHECK(linear["flops"] == 2 * 16 * 48 * 32);
  CHECK(linear["bytes"] == 4 * (16 * 32 + 32 * 48 + 2 * 16 * 48));
  const json grouped = row("grouped_matmul_dweight_8");
  CHECK(grouped["shape"] == "32 x 6 x 32, 8 experts");
  CHECK(grouped["flops"] == 2 * 32 * 6 * 32);
  CHECK(grouped["bytes"] == 4 * (32 * 32 + 32 * 6 + 8 * 6 * 32));
  const json attention = row("attention_backward");
  CHECK(attention["shape"] == "2 x 2/1 heads x 8 x 16, causal");
  CHECK(attention["flops"] == 5 * 2 * 2 * 2 * 8 * 8 * 16 / 2);
  CHECK(attention["bytes"] == 4 * 2 * (16 * 64 + 16 * 32));
  CHECK(row("rope_forward")["bytes"] == 4 * 2 * 16 * 3 * 16);
  const json qk_norm = row("qk_norm_backward");
  CHECK(qk_norm["shape"] == "2 x 8 x 2/1 heads of 16");
  CHECK(qk_norm["bytes"] == 4 * 3 * 16 * 3 * 16);
  // The baseline's products are padded to a vocabulary of 128; the head counts its 101.
  CHECK(row("linear_cross_entropy")["flops"].get<double>() == Approx(3 * 2 * 16 * 101 * 32));
  // Logits are read once and gradients are written once.
  CHECK(row("cross_entropy_chunk")["bytes"] == 4 * 2 * 16 * 101);
}

TEST_CASE("bench_kernels: an unknown name is one line and status 1") {
  const TemporaryDirectory folder;
  CHECK_THAT(shell("bench_kernels --op none" + kQuick, folder).text(),
             Contains("no kernel whose name contains 'none'"));
  const ShellOutcome model = shell("bench_kernels --models gpt5", folder);
  CHECK(model.status == 1);
  CHECK_THAT(model.text(), Contains("unknown model 'gpt5': choose from gpt2") &&
                               Contains("llama3-8b") && Contains(", tiny"));
  const ShellOutcome unknown = shell("bench_kernels --device gpu", folder);
  CHECK(unknown.status == 1);
  CHECK_THAT(unknown.text(),
             Catch::StartsWith("bench_kernels: --device is gpu; expected auto, cpu"));
}

TEST_CASE("bench_matmul: the products of a step in f32 and bf16, with their sums", "[cpu]") {
  const TemporaryDirectory folder;
  const std::string file = folder / "products.json";
  const ShellOutcome outcome = shell(
      "bench_matmul --model tiny --tokens 8 --threads 1 --runs 1 --isa portable --json " + file,
      folder);
  INFO(outcome.text());
  REQUIRE(outcome.status == 0);
  const json report = json::parse(read_text_file(file));
  CHECK(report["isa"] == "portable");
  double flops = 0.0;
  for (const json& row : report["products"]) {
    CHECK(row["seconds"].get<double>() > 0.0);
    CHECK((row["openblas"].get<double>() > 0.0) == (row["dtype"] == "f32"));
    if (row["product"] == "the step") {
      CHECK(row["flops"].get<double>() >= flops);
      flops = 0.0;
    } else {
      flops += row["flops"].get<double>();
    }
  }
  CHECK(report["products"].back()["product"] == "the step");
  const std::string some =
      "bench_matmul --model tiny --tokens 8 --threads 1 --runs 1 --dtype bf16 --only ";
  CHECK_THAT(shell(some + "\"8 ta\"", folder).text(),
             Contains("together") && !Contains("f32") && !Contains(" tb "));
  CHECK_THAT(shell(some + "7x7", folder).text(), Contains("no product's name contains '7x7'"));
  CHECK_THAT(shell("bench_matmul --isa sse9", folder).text(),
             Contains("bench_matmul: ") && Contains("instruction set"));
}

TEST_CASE("benchmarks print OpenBLAS's kernels, which have the CPU's best instructions", "[cpu]") {
  const TemporaryDirectory folder;
  for (const std::string& program :
       {std::string("bench_matmul --model tiny --tokens 8 --threads 1 --runs 1"),
        std::string("bench_step --model tiny --device cpu --threads 1 --steps 1"),
        "bench_kernels --device cpu --op matmul_dx" + kQuick}) {
    CAPTURE(program);
    const ShellOutcome best = shell("env -u OPENBLAS_CORETYPE " + program, folder);
    CHECK(best.status == 0);
    CHECK_THAT(best.text(), Contains("OpenBLAS ") && Contains(" kernels") && !Contains("flatters"));
    // A choice of the environment stays, and its kernels may be worse.
    const std::string core(cpu::openblas_core_for(cpu::best_isa()));
    if (core.empty()) continue;
    CHECK_THAT(shell("env OPENBLAS_CORETYPE=Prescott " + program, folder).text(),
               Contains("with Prescott kernels (OPENBLAS_CORETYPE=Prescott") &&
                   Contains("could run those of " + core));
  }
}

TEST_CASE("bench_step: phases of a step on the device, a baseline, and MFU") {
  const TemporaryDirectory folder;
  const std::string file = folder / "step.json";
  const ShellOutcome outcome =
      shell("bench_step --model tiny --batch 2 --sequence 4 --steps 1 --threads 1 --dtype bf16" +
                device() + " --json " + file,
            folder);
  INFO(outcome.text());
  REQUIRE(outcome.status == 0);
  const json report = json::parse(read_text_file(file));
  CHECK(report["device"] == to_string(test::device()));
  CHECK(report["config"]["runtime.compute_dtype"] == "bf16");
  CHECK(report["config"]["data.batch_size"] == "2");
  CHECK(report["strategy"] == "single");
  CHECK_THAT(outcome.text(),
             Contains("3 layers x 24, vocabulary 257") && Contains("single on 1 rank"));
  CHECK_THAT(report["baseline"].get<std::string>(),
             Catch::StartsWith(test::kOnGpu ? "cuBLASLt" : "OpenBLAS "));
  double phases = 0.0;
  for (const char* key : {"data_ms", "forward_ms", "backward_ms", "optimizer_ms"}) {
    CHECK(report[key].get<double>() > 0.0);
    phases += report[key].get<double>();
  }
  CHECK(phases <= 1.01 * report["step_ms"].get<double>());  // of one step, by two clocks on a GPU
  for (const char* key :
       {"step_ms", "model_flops_per_second", "baseline_flops_per_second", "ratio"}) {
    CHECK(report[key].get<double>() > 0.0);
  }
  if (report["mfu"].is_null()) {
    CHECK(report["peak_flops_per_second"].is_null());
    CHECK_THAT(outcome.text(), Contains("MFU          unknown"));
  } else {
    CHECK(report["mfu_palm"].get<double>() > report["mfu"].get<double>());
    CHECK_THAT(outcome.text(), Contains("6 N + 6 L H Q T per token"));
  }
}

TEST_CASE("bench_step: steps without a pause have the GPU's clock and power, or the reason") {
  const TemporaryDirectory folder;
  const std::string file = folder / "step.json", samples = folder / "nvidia-smi";
  write_file_atomically(samples,
                        "#!/bin/bash\n"
                        "echo '1635, 698.5, 0x0000000000000004'\nexec sleep 600\n");
  std::filesystem::permissions(samples, std::filesystem::perms::owner_all);
  const ShellOutcome outcome =
      shell("PATH=" + std::string(folder / "") + ":$PATH bench_step --model tiny --batch 2 " +
                "--sequence 4 --steps 1 --threads 1 --sustained 1" + device() + " --json " + file,
            folder);
  INFO(outcome.text());
  REQUIRE(outcome.status == 0);
  const json sustained = json::parse(read_text_file(file))["sustained"];
  CHECK(sustained["steps"].get<int>() >= 1);
  CHECK(sustained["step_ms"].get<double>() > 0.0);
  if (test::kOnGpu) {
    CHECK(sustained["sm_mhz"] == 1635.0);
    CHECK(sustained["clock_event_reasons"] == json({{"sw_power_cap", 1.0}}));
    CHECK_THAT(outcome.text(), Contains("698 W") && Contains("of the time sw_power_cap"));
  } else {
    CHECK(sustained["reason"] == "no GPU");
    CHECK_THAT(outcome.text(), Contains("clock        unknown  no GPU"));
  }
}

TEST_CASE("bench_step: an option that the device lacks is one line") {
  const TemporaryDirectory folder;
  const ShellOutcome cudnn =
      shell("bench_step --model tiny --device cpu --attention cudnn", folder);
  CHECK(cudnn.status == 1);
  CHECK_THAT(cudnn.text(), Catch::StartsWith("bench_step: ") && Contains("needs a GPU"));
  const ShellOutcome dtype = shell("bench_step --model tiny --dtype f8", folder);
  CHECK(dtype.status == 1);
  CHECK_THAT(dtype.text(), Contains("runtime.compute_dtype") && Contains("f8"));
  CHECK(shell("bench_step --model tiny --device cuda:99", folder).status == 1);
}

TEST_CASE("bench_step: one YAML file is one model, with its batch and accumulation") {
  const TemporaryDirectory folder;
  const std::string text = folder / "text.txt", data = folder / "data", yaml = folder / "run.yaml";
  write_file_atomically(text, std::string(200, 'a') + "bcdefg");
  REQUIRE(shell("tessera prepare --tokenizer chars --input " + text + " --out " + data, folder)
              .status == 0);
  write_file_atomically(yaml,
                        "model: {preset: gpt2-mini, layers: 1, heads: 2, width: 8, context: 4}\n"
                        "data: {train: " +
                            data +
                            "/train.bin, batch_size: 6, "
                            "sequence_length: 4, accumulation_steps: 3}\n");
  const std::string json_file = folder / "step.json";
  const ShellOutcome step =
      shell("bench_step --model " + yaml + " --steps 1 --threads 1 optimizer.name=sgd" + device() +
                " --json " + json_file,
            folder);
  INFO(step.text());
  REQUIRE(step.status == 0);
  CHECK_THAT(step.text(), Contains("vocabulary 7 from " + data + "/manifest.json") &&
                              Contains("batch 6 x 4 in 3 micro-batches"));
  const json report = json::parse(read_text_file(json_file));
  CHECK(report["shape"]["vocab_size"] == 7);
  CHECK(report["config"]["data.accumulation_steps"] == "3");
  CHECK(report["config"]["optimizer.name"] == "sgd");
  // Tables of 7 and 4 rows, a norm, and a block of two norms and four linears.
  constexpr int kBlock = 2 * 16 + 8 * 24 + 24 + 8 * 8 + 8 + 2 * 8 * 32 + 32 + 8;
  CHECK(report["parameters"] == (7 + 4 + 2) * 8 + kBlock);
  const ShellOutcome shape = shell("bench_step --print-shape --model " + yaml, folder);
  CHECK(json::parse(shape.text())["vocab_size"] == 7);
}

TEST_CASE("bench_strategies: strategies agree on the device") {
  const TemporaryDirectory folder;
  const std::string file = folder / "figures.json";
  const ShellOutcome outcome = shell(
      "bench_strategies --ranks 2 --batch 2 --sequence 4 --steps 2 --threads 1 "
      "--strategies ddp,fsdp" +
          device() + " --json " + file,
      folder);
  INFO(outcome.text());
  REQUIRE(outcome.status == 0);
  CHECK_THAT(outcome.text(), Contains(to_string(test::device())) && Contains("All agree"));
  const json figures = json::parse(read_text_file(file));
  for (const json& row : figures["strategies"]) {
    CHECK(row["communication_ms"].get<double>() > 0.0);
    CHECK(row["exposed_communication_ms"].get<double>() > 0.0);
  }
}

TEST_CASE("bench_collectives: touched and sent bytes are as its model says") {
  const TemporaryDirectory folder;
  const std::string file = folder / "rates.json";
  const ShellOutcome outcome = shell(
      "bench_collectives --ranks 4 --kib 64 --pairs 1" + device() + " --json " + file, folder);
  INFO(outcome.text());
  REQUIRE(outcome.status == 0);
  const json report = json::parse(read_text_file(file));
  CHECK(report["device"] == to_string(test::device()));
  CHECK(report.at("ranks") == 4);
  // The tensor has four parts of 16 KiB.
  constexpr int kPart = 16 << 10;
  struct Parts {
    int touched;
    int sent;    // by rank 0
    double bus;  // busbw over algbw, from nccl-tests' PERFORMANCE.md
  };
  const std::map<std::string, Parts> expected = {
      {"all_gather", {3 + 3, 3, 0.75}},    {"reduce_scatter", {4 + 1, 3, 0.75}},
      {"all_reduce", {5 + 6, 3 + 3, 1.5}}, {"broadcast", {8, 12, 1.0}},
      {"reduce", {5 + 6, 3, 1.0}},         {"all_to_all", {8, 3, 0.75}}};
  REQUIRE(report.at("collectives").size() == expected.size());
  for (const auto& row : report.at("collectives")) {
    const std::string name = row.at("collective");
    INFO(name);
    CHECK(row.at("touched_bytes") == expected.at(name).touched * kPart);
    CHECK(row.at("sent_bytes") == expected.at(name).sent * kPart);
    CHECK(row.at("touched_bytes_per_second") > 0.0);
    const double rate = row.at("algbw_bytes_per_second").get<double>();
    CHECK(rate * row.at("time_us").get<double>() * 1e-6 == Approx(4 * kPart));
    CHECK(row.at("busbw_bytes_per_second").get<double>() / rate == Approx(expected.at(name).bus));
    CHECK(row.at("copy_bytes_per_second") > 0.0);
    CHECK(row.at("ratio") > 0.0);
  }
  CHECK(shell("bench_collectives --ranks 0", folder).status == 2);
}

namespace {

/// Starts `program` with these variables in its environment, sends it a signal and returns the
/// outcome.
ShellOutcome stopped(const std::string& variables, const std::string& program,
                     const std::string& signal, const TemporaryDirectory& folder) {
  // Waits until the program, no longer bash, catches SIGINT (bit 1) and SIGTERM (bit 14).
  const std::string ready =
      "! grep -q '^Name:.*bash' /proc/$!/status && "
      "grep -q '^SigCgt:.*[4567cdef]..[2367abef]$' /proc/$!/status";
  return shell(variables + " " + program + device() + " > /dev/null & until " + ready +
                   "; do sleep 0.1; done; kill -" + signal + " $!; wait $!",
               folder);
}

}  // namespace

TEST_CASE("a signal ends each benchmark with one line and the signal's status") {
  const TemporaryDirectory folder;
  const std::string endless =
      "bench_kernels --models tiny --tokens 16 --flush-mib 1 --threads 1 --runs 1000000000";
  for (const std::string& program :
       {endless, std::string("bench_step --model tiny --threads 1 --steps 1000000"),
        std::string("bench_strategies --model tiny --threads 1 --steps 1000000"),
        std::string("bench_collectives --ranks 1 --kib 64 --pairs 100000000")}) {
    CAPTURE(program);
    const std::string name = program.substr(0, program.find(' '));
    for (const auto& [signal, status] : {std::pair("INT", 130), std::pair("TERM", 143)}) {
      const ShellOutcome outcome = stopped("", program, signal, folder);
      CHECK(outcome.status == status);
      CHECK(outcome.err == name + ": stopped by SIG" + signal + "\n");
    }
  }
  // A launcher's other processes leave the line to the first one.
  const std::string second = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1";
  const ShellOutcome quiet = stopped(second, endless, "TERM", folder);
  CHECK(quiet.status == 143);
  CHECK(quiet.err.empty());
}

}  // namespace tessera
