// bench_kernels: every kernel over real models' shapes, against what the device can do.
//
//   bench_kernels [--device cuda] [--op rms_norm] [--dtype bf16] [--json F]
//
// A kernel bound by memory is compared with a copy, large enough to leave every cache, of the same
// device: bytes it must move over time, against the copy's bytes read and written over time. One
// bound by arithmetic is compared with plain matrix products (cuBLASLt, or OpenBLAS) of the shapes
// it is made of. The yardstick is timed again beside every case, so that a drifting clock slows
// both. Caches are flushed before each run; times are the median of the runs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "kernels/matmul/op.h"
#include "runtime/check.h"
#include "runtime/file.h"
#include "sharding/comm/threads.h"
#include "tools/bench/kernel_cases.h"
#include "tools/bench/stopwatch.h"
#include "tools/bench/workload.h"
#include "tools/train/matmul_rate.h"

namespace tessera {
namespace {

struct Options {
  std::string device = "auto";
  std::string op;
  std::string dtype;  // empty: bf16 on a GPU, f32 on the CPU
  std::string json;
  KernelSizes sizes;
  int threads = 0;
  int runs = 20;
};

/// Bytes per second that a copy reads and writes.
double copy_rate(const Stopwatch& stopwatch) {
  const std::int64_t bytes = stopwatch.flushed_bytes();
  const Tensor from = Tensor::zeros({bytes}, DType::u8), to = Tensor::empty({bytes}, DType::u8);
  const double ms = stopwatch.median_ms([&] { to.copy_from(from); });
  return 2.0 * static_cast<double>(bytes) / (ms * 1e-3);
}

/// FLOP/s of plain products of these shapes: cuBLASLt's, or OpenBLAS's with its own threading.
double product_rate(const std::vector<MatmulShape>& shapes, DType dtype,
                    const Stopwatch& stopwatch) {
  if (context().device().is_cpu()) return sgemm_rate(shapes, context().threads().size());
  double flops = 0.0, ms = 0.0;
  for (const MatmulShape& m : shapes) {
    const bool ta = m.transpose_a == Transpose::yes, tb = m.transpose_b == Transpose::yes;
    const Tensor a = noise(ta ? Shape{m.k, m.m} : Shape{m.m, m.k}, dtype);
    const Tensor b = noise(tb ? Shape{m.n, m.k} : Shape{m.k, m.n}, dtype);
    const Tensor c = Tensor::empty({m.m, m.n}, dtype);
    const auto count = static_cast<double>(m.count);
    ms += count * stopwatch.median_ms([&] { matmul(c, a, b, m.transpose_a, m.transpose_b); });
    flops += m.flops();
  }
  return flops / (ms * 1e-3);
}

nlohmann::json measure(const KernelCase& kernel, const Stopwatch& stopwatch) {
  const CategoryScope category(Category::other);
  double ms = 0.0;
  {
    const auto run = kernel.prepare();
    ms = stopwatch.median_ms(run);
  }
  const bool copies = kernel.yardstick == Yardstick::copy;
  const double best =
      copies ? copy_rate(stopwatch) : product_rate(kernel.matmuls, kernel.dtype, stopwatch);
  const double rate = (copies ? kernel.bytes : kernel.flops) / (ms * 1e-3);
  context().allocator().trim();
  return {{"op", kernel.op},
          {"shape", kernel.shape},
          {"dtype", std::string(name_of(kernel.dtype))},
          {"time_ms", ms},
          {"bytes", kernel.bytes},
          {"flops", kernel.flops},
          {"yardstick", copies ? "copy" : "matmul"},
          {"yardstick_per_second", best},
          {"ratio", rate / best}};
}

void print_row(const nlohmann::json& row) {
  const bool copies = row["yardstick"] == "copy";
  const double work = row[copies ? "bytes" : "flops"].get<double>();
  const double rate = work / (row["time_ms"].get<double>() * 1e-3);
  const double best = row["yardstick_per_second"].get<double>();
  const double unit = copies ? 1e9 : 1e12;
  fmt::print("{:<22} {:<32} {:<5} {:>9.4f} {:>9.2f} {:>9.2f} {:<7} {:>6.2f}\n",
             row["op"].get<std::string>(), row["shape"].get<std::string>(),
             row["dtype"].get<std::string>(), row["time_ms"].get<double>(), rate / unit,
             best / unit, copies ? "GB/s" : "TFLOP/s", row["ratio"].get<double>());
}

void run(const Options& options) {
  const bool cpu = context().device().is_cpu();
  const DType dtype =
      options.dtype.empty() ? (cpu ? DType::f32 : DType::bf16) : dtype_from_name(options.dtype);
  const Stopwatch stopwatch(options.runs);
  fmt::print("{}, median of {} runs from cold caches\n", to_string(context().device()),
             options.runs);
  fmt::print("{:<22} {:<32} {:<5} {:>9} {:>9} {:>9} {:<7} {:>6}\n", "op", "shape", "dtype", "ms",
             "rate", "yardstick", "", "ratio");
  nlohmann::json rows = nlohmann::json::array();
  for (const KernelCase& kernel : kernel_cases(options.sizes, dtype)) {
    if (kernel.op.find(options.op) == std::string::npos) continue;
    rows.push_back(measure(kernel, stopwatch));
    print_row(rows.back());
  }
  if (rows.empty()) fail("there is no kernel whose name contains '{}'", options.op);
  if (!options.json.empty()) write_file_atomically(options.json, rows.dump(2) + "\n");
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Options options;
  tessera::KernelSizes& sizes = options.sizes;
  CLI::App app("Every kernel over real models' shapes, against a copy or plain matrix products");
  app.add_option("--device", options.device, "auto, cpu, cuda or cuda:1");
  app.add_option("--op", options.op, "Only operations whose name contains this");
  app.add_option("--dtype", options.dtype, "f32, bf16 or f16; by default bf16 on a GPU, else f32");
  app.add_option("--tokens", sizes.tokens, "Rows of activations")->check(CLI::PositiveNumber);
  app.add_option("--widths", sizes.widths, "Widths of models")->delimiter(',');
  app.add_option("--vocab", sizes.vocab_size, "Rows of the embedding")->check(CLI::PositiveNumber);
  app.add_option("--sequence", sizes.sequence, "Tokens of a row, for attention")
      ->check(CLI::PositiveNumber);
  app.add_option("--head-size", sizes.head_size, "Channels of a head")->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "0: all cores")->check(CLI::NonNegativeNumber);
  app.add_option("--runs", options.runs, "Timed runs of each")->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "Also write the rows to this file");
  try {
    app.parse(argc, argv);
    const auto device = tessera::parse_device(options.device);
    tessera::check(device.has_value(), "--device {}: it must be auto, cpu, cuda or cuda:1",
                   options.device);
    tessera::run_ranks({.device = *device, .threads = options.threads},
                       [&](tessera::Communicator&) { tessera::run(options); });
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const tessera::Error& error) {
    fmt::print(stderr, "bench_kernels: {}\n", error.what());
    return 1;
  }
}
