// bench_collectives: every collective over sizes, compared with the device's rate of copying.
//
//   bench_collectives --ranks 2               ranks are threads, or with NCCL processes with a GPU each
//   mpirun -np 2 bench_collectives            ranks are processes
//
// The model. A collective must touch memory in any implementation. With N ranks and S bytes (of the
// whole tensor, f32), one rank reads and writes at least
//
//   all_gather       the other ranks' parts: reads (N-1)/N S, writes (N-1)/N S
//   reduce_scatter   N parts: reads S; writes one: S/N
//   all_reduce       reduce_scatter, then all_gather
//   broadcast        reads S, writes S (a rank other than the root)
//   reduce           reduce_scatter, then the root reads and writes (N-1)/N S
//   all_to_all       reads S, writes S
//
// and a memcpy of S bytes reads S and writes S. "touched" and "copy" are these bytes over time. The
// reads that a cache makes before it writes are counted in neither; glibc's memcpy of large blocks
// avoids them. A ratio can exceed 1 for a broadcast, whose root is idle, and for sums, which read more
// than they write. "algbw" and "busbw" are defined as in nccl-tests: S over time, and S over time
// times the share that must cross a link.
//
// Time is that of the slowest rank from a common start. All ranks copy at once, as all take part in
// a collective. Copies and collectives alternate, and the ratio is the median over these pairs: it
// need not equal the quotient of the two medians next to it.
//
// On GPUs (--device cuda) the baseline is a copy within the GPU's memory, and the GPU's clock gives the
// times. Ranks that share a GPU share its memory's bandwidth, in copies as in collectives. Between
// GPUs a ratio compares the link with the memory.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/threads.h"
#include "sharding/comm/world.h"
#include "tools/bench/command_line.h"
#include "tools/bench/report.h"
#include "tools/launch/rank_commands.h"
#include "tools/measure/link.h"
#include "tools/measure/median.h"
#include "tools/plan/machine_file.h"
#include "tools/program/command_line.h"

namespace tessera {
namespace {

struct Options {
  std::string device = "auto";
  WorldOptions world = {.threads = 1};
  std::vector<std::int64_t> kib = {64, 1 << 10, 16 << 10, 64 << 10};
  int pairs = 15;
  std::string json;
  std::string fit;
};

struct Operation {
  Collective collective;
  double touched;  // bytes that one rank must touch, per byte of the whole tensor
  double bus;      // nccl-tests' factor from algbw to busbw
  std::function<void()> run = {};
};

std::vector<Operation> operations(Communicator& world, const CollectiveOperands& operands) {
  const double n = world.size();
  const double others = (n - 1) / n;
  std::vector<Operation> all = {{Collective::all_gather, 2 * others, others},
                                {Collective::reduce_scatter, 1 + 1 / n, others},
                                {Collective::all_reduce, 1 + 1 / n + 2 * others, 2 * others},
                                {Collective::broadcast, 2, 1},
                                {Collective::reduce, 1 + 1 / n + 2 * others, 1},
                                {Collective::all_to_all, 2, others}};
  const auto timed = timed_collectives(world, operands, context().compute_stream());
  for (std::size_t i = 0; i < all.size(); ++i) all[i].run = timed[i].run;
  return all;
}

nlohmann::ordered_json measure(Communicator& world, const Options& options, std::int64_t kib,
                               const Operation& operation, const CollectiveOperands& buffers) {
  const auto bytes = static_cast<double>(buffers.whole.bytes());
  const auto copy = [&] { buffers.other.copy_from(buffers.whole); };
  // Small sizes run many times, so that the clock and the barrier do not count.
  const int runs = static_cast<int>(std::max(1.0, 16e6 / bytes));
  slowest_seconds(world, 1, operation.run);  // warm-up
  const std::int64_t sent_before = world.bytes_sent(operation.collective);
  operation.run();
  const std::int64_t sent = world.bytes_sent(operation.collective) - sent_before;
  std::vector<double> seconds, copy_rates, ratios;
  for (int i = 0; i < options.pairs; ++i) {
    copy_rates.push_back(2 * bytes / slowest_seconds(world, runs, copy));
    seconds.push_back(slowest_seconds(world, runs, operation.run));
    ratios.push_back(operation.touched * bytes / seconds.back() / copy_rates.back());
  }
  const double time = median(seconds);
  return {{"collective", std::string(name_of(operation.collective))},
          {"kib", kib},
          {"time_us", time * 1e6},
          {"algbw_bytes_per_second", bytes / time},
          {"busbw_bytes_per_second", operation.bus * bytes / time},
          {"touched_bytes", operation.touched * bytes},
          {"touched_bytes_per_second", operation.touched * bytes / time},
          {"copy_bytes_per_second", median(copy_rates)},
          {"ratio", median(ratios)},
          {"sent_bytes", sent}};
}

void print_row(const nlohmann::ordered_json& row) {
  const auto giga = [&](const char* key) { return row[key].get<double>() * 1e-9; };
  fmt::print("{:<15} {:>9} {:>10.1f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>7.2f}\n",
             row["collective"].get<std::string>(), row["kib"].get<std::int64_t>(),
             row["time_us"].get<double>(), giga("algbw_bytes_per_second"),
             giga("busbw_bytes_per_second"), giga("touched_bytes_per_second"),
             giga("copy_bytes_per_second"), row["ratio"].get<double>());
  flush_output();
}

void print_heading(const Communicator& world, const Options& options) {
  const int threads = context().threads().size();
  fmt::print("{} ranks on {} x {} thread{}, median of {} pairs of a copy and a collective\n",
             world.size(), to_string(context().device()), threads, threads == 1 ? "" : "s",
             options.pairs);
  fmt::print("{:<15} {:>9} {:>10} {:>8} {:>8} {:>8} {:>8} {:>7}\n", "collective", "KiB", "us",
             "algbw", "busbw", "touched", "copy", "ratio");
  fmt::print("{:<15} {:>9} {:>10} {:>8} {:>8} {:>8} {:>8} {:>7}\n", "", "", "", "GB/s", "GB/s",
             "GB/s", "GB/s", "paired");
}

/// Puts the link that fits these ranks' collectives into a machine file.
void fit(Communicator& world, const std::string& file) {
  const Link link = measure_link(world);
  if (world.rank() != 0) return;
  MachineRates machine =
      machine_to_fit(file, context().device().is_cpu() ? available_threads() : 0);
  replace_link(machine, link);
  write_machine(file, machine);
  fmt::print("\nfit: latency {:.1f} us, {:.2f} GB/s; written to {}\n", 1e6 * link.latency,
             1e-9 * link.bandwidth, file);
}

void run(Communicator& world, const Options& options) {
  const bool prints = world.rank() == 0;
  if (prints) print_heading(world, options);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const std::int64_t kib : options.kib) {
    const CollectiveOperands buffers(kib << 10, world.size());
    for (const Operation& operation : operations(world, buffers)) {
      const nlohmann::ordered_json row = measure(world, options, kib, operation, buffers);
      if (prints) print_row(row);
      rows.push_back(row);
    }
  }
  if (!options.fit.empty()) fit(world, options.fit);
  if (!prints) return;
  nlohmann::ordered_json report = new_report("bench_collectives");
  report["pairs"] = options.pairs;
  report["collectives"] = rows;
  write_report(options.json, report);
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  tessera::Options options;
  tessera::Command app("bench_collectives",
                       "Times every collective over sizes, next to the device's rate of copying");
  app.shows_defaults();
  app.option("--ranks", options.world.ranks,
             "Ranks: threads, or with NCCL a process for each GPU; not under mpirun")
      .positive();
  app.option("--device", options.device, "Device of rank 0: auto, cpu, cuda or cuda:1");
  app.option("--threads", options.world.threads,
             "Threads per rank; 0: the cores divided by the ranks")
      .not_negative();
  app.option("--kib", options.kib, "Sizes of the whole tensor in KiB")
      .separated_by_commas()
      .positive();
  app.option("--pairs", options.pairs, "Timed pairs of a copy and a collective").positive();
  app.option("--fit", options.fit,
             "Also write latency and bandwidth to this machine file, for tessera plan --machine");
  app.option("--json", options.json, "Also write the figures to this file");
  return tessera::run_main(app, count, arguments, [&] {
    options.world.device = tessera::device_of_option(options.device);
    if (tessera::are_processes(options.world)) {
      return tessera::run_as_ranks(count, arguments, options.world.ranks);
    }
    tessera::run_world(options.world,
                       [&](tessera::Communicator& world) { tessera::run(world, options); });
    return 0;
  });
}
