// bench_collectives: every collective over sizes, against the device's rate of copying.
//
//   bench_collectives --ranks 2               ranks are threads
//   mpirun -np 2 bench_collectives            ranks are processes
//
// The model. A collective must touch memory, whoever carries it out. With N ranks and S bytes (of
// the whole tensor, f32), one rank reads and writes at least
//
//   all_gather       the other ranks' parts: reads (N-1)/N S, writes (N-1)/N S
//   reduce_scatter   N parts: reads S; writes one: S/N
//   all_reduce       reduce_scatter, then all_gather
//   broadcast        reads S, writes S (a rank other than the root)
//   reduce           reduce_scatter, then the root reads and writes (N-1)/N S
//   all_to_all       reads S, writes S
//
// and a memcpy of S bytes reads S and writes S. Rates are these bytes over time. The reads that a
// cache makes before it writes are counted in neither; glibc's memcpy of large blocks avoids them.
// A ratio may pass 1: of a broadcast, whose root is idle, and of sums, which read more than they
// write.
// Time is that of the slowest rank from a common start. All ranks copy at once, as all take part in
// a collective; copies and collectives alternate, and the ratio is the median over these pairs.
//
// On GPUs (--device cuda) the yardstick is a copy within the GPU's memory, and times are the GPU's.
// Ranks that share a GPU share its memory's bandwidth, in copies as in collectives; between GPUs
// a ratio says how much slower the way to the other GPU is than a GPU's own memory.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "sharding/comm/world.h"
#include "tools/bench/workload.h"

namespace tessera {
namespace {

struct Options {
  std::string device = "auto";
  WorldOptions world = {.threads = 1};
  std::vector<std::int64_t> kib = {64, 1 << 10, 16 << 10, 64 << 10};
  int pairs = 15;
  std::string json;
};

struct Operation {
  Collective collective;
  double touched;  // bytes that one rank must touch, per byte of the whole tensor
  std::function<void()> run;
};

/// What the operations work on: three tensors of one size, and a part of them.
struct Buffers {
  Tensor whole, other, part;

  Buffers(std::int64_t bytes, int ranks) {
    const std::int64_t count = bytes / 4 / ranks * ranks;
    whole = Tensor::full({count}, DType::f32, 1.0);
    other = Tensor::zeros({count}, DType::f32);
    part = Tensor::zeros({count / ranks}, DType::f32);
  }
};

std::vector<Operation> operations(Communicator& world, const Buffers& buffers) {
  const Stream& stream = context().compute_stream();
  const double n = world.size();
  const double others = (n - 1) / n;
  return {
      {Collective::all_gather, 2 * others, [&] { world.all_gather({buffers.whole}, stream); }},
      {Collective::reduce_scatter, 1 + 1 / n,
       [&] { world.reduce_scatter({buffers.part}, {buffers.whole}, stream); }},
      {Collective::all_reduce, 1 + 1 / n + 2 * others,
       [&] { world.all_reduce({buffers.other}, stream); }},
      {Collective::broadcast, 2, [&] { world.broadcast({buffers.whole}, 0, stream); }},
      {Collective::reduce, 1 + 1 / n + 2 * others,
       [&] { world.reduce({buffers.other}, 0, stream); }},
      {Collective::all_to_all, 2,
       [&] { world.all_to_all({buffers.other}, {buffers.whole}, stream); }},
  };
}

/// Seconds of one run among `runs`, of the slowest rank.
double slowest(Communicator& world, int runs, const std::function<void()>& run) {
  const Stream& stream = context().compute_stream();
  world.barrier(stream).synchronize();
  const TimePoint begin = TimePoint::now();
  for (int i = 0; i < runs; ++i) run();
  const double ms = milliseconds_between(begin, TimePoint::now());
  const Tensor seconds = Tensor::from(std::vector{static_cast<float>(1e-3 * ms)}, {1});
  world.all_reduce({seconds}, stream, "slowest", Reduction::maximum);
  return static_cast<double>(seconds.item<float>()) / runs;
}

nlohmann::json measure(Communicator& world, const Options& options, std::int64_t kib,
                       const Operation& operation, const Buffers& buffers) {
  const auto bytes = static_cast<double>(buffers.whole.bytes());
  const auto copy = [&] { buffers.other.copy_from(buffers.whole); };
  // Small sizes are repeated, so that the clock and the start do not count.
  const int runs = static_cast<int>(std::max(1.0, 16e6 / bytes));
  slowest(world, 1, operation.run);  // warm-up
  const std::int64_t sent_before = world.bytes_sent(operation.collective);
  operation.run();
  const std::int64_t sent = world.bytes_sent(operation.collective) - sent_before;
  std::vector<double> copy_rates, rates, ratios;
  for (int i = 0; i < options.pairs; ++i) {
    copy_rates.push_back(2 * bytes / slowest(world, runs, copy));
    rates.push_back(operation.touched * bytes / slowest(world, runs, operation.run));
    ratios.push_back(rates.back() / copy_rates.back());
  }
  return {{"collective", std::string(name_of(operation.collective))},
          {"kib", kib},
          {"touched_bytes", operation.touched * bytes},
          {"bytes_per_second", median(rates)},
          {"copy_bytes_per_second", median(copy_rates)},
          {"ratio", median(ratios)},
          {"sent_bytes", sent}};
}

void run(Communicator& world, const Options& options) {
  const bool speaks = world.rank() == 0;
  if (speaks) {
    fmt::print("{} ranks on {}, {} thread(s) each, median of {} pairs\n", world.size(),
               to_string(context().device()), context().threads().size(), options.pairs);
    fmt::print("{:<15} {:>9} {:>12} {:>12} {:>7}\n", "collective", "KiB", "GB/s", "copy GB/s",
               "ratio");
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const std::int64_t kib : options.kib) {
    const Buffers buffers(kib << 10, world.size());
    for (const Operation& operation : operations(world, buffers)) {
      const nlohmann::json row = measure(world, options, kib, operation, buffers);
      if (!speaks) continue;
      fmt::print("{:<15} {:>9} {:>12.2f} {:>12.2f} {:>7.2f}\n",
                 row["collective"].get<std::string>(), kib,
                 row["bytes_per_second"].get<double>() * 1e-9,
                 row["copy_bytes_per_second"].get<double>() * 1e-9, row["ratio"].get<double>());
      rows.push_back(row);
    }
  }
  if (!speaks || options.json.empty()) return;
  const nlohmann::json report = {{"ranks", world.size()},
                                 {"device", to_string(context().device())},
                                 {"threads", context().threads().size()},
                                 {"pairs", options.pairs},
                                 {"collectives", rows}};
  write_file_atomically(options.json, report.dump(2) + "\n");
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Options options;
  CLI::App app("Every collective over sizes, against the device's rate of copying");
  app.add_option("--ranks", options.world.ranks, "Ranks that are threads; not under mpirun")
      ->check(CLI::PositiveNumber);
  app.add_option("--device", options.device, "auto, cpu, cuda or cuda:1: of the first rank");
  app.add_option("--threads", options.world.threads, "Threads per rank; 0: a share of the cores")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--kib", options.kib, "Sizes of the whole tensor in KiB")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--pairs", options.pairs, "Timed pairs of a copy and a collective")
      ->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "Also write the figures to this file");
  try {
    app.parse(argc, argv);
    options.world.device = tessera::device_of_option(options.device);
    tessera::run_world(options.world,
                       [&](tessera::Communicator& world) { tessera::run(world, options); });
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const tessera::FailedElsewhere&) {
    return 1;
  } catch (const tessera::Error& error) {
    fmt::print(stderr, "bench_collectives: {}\n", error.what());
    return 1;
  }
}
