// bench_counts: the work of a training step, counted on the emulated GPU, and the time that it needs.
//
// Every kernel runs on the CPU, compiled so that its loads and stores are counted
// (docs/emulation.md). A step of a large model would take hours, so steps of small ones are counted:
// 27 of them decide the polynomials of tools/bench/counts/extrapolation.h. One more, larger in every
// way, is counted and compared; counters that differ are listed.
//
// The roofline and the model FLOP/s utilization (MFU) that it implies follow from
// tools/bench/counts/roofline.h. Nothing here is measured: every figure is "counted".
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/threads/threads.h"
#include "tools/bench/command_line.h"
#include "tools/bench/counts/extrapolation.h"
#include "tools/bench/counts/kernel_label.h"
#include "tools/bench/counts/layer_bytes.h"
#include "tools/bench/counts/registers.h"
#include "tools/bench/counts/roofline.h"
#include "tools/bench/report.h"
#include "tools/bench/workload.h"
#include "tools/config/kernel_options.h"
#include "tools/config/sharding_options.h"
#include "tools/program/command_line.h"
#include "tools/train/lengths.h"
#include "tools/train/resolve.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

struct Options {
  WorkloadOptions workload;
  std::string registers;
  bool check = true;
  std::string json;
};

// ---- Counts of one step

const char* name_of_phase(StepPhase phase) {
  constexpr const char* kNames[] = {"forward", "backward", "optimizer"};
  return kNames[static_cast<int>(phase)];
}

/// The work of one kernel in one phase of a step.
struct KernelWork {
  std::vector<double> counters;  // launches, then emulation::counters()
  int threads = 0;
  double shared_bytes = 0;
};

using StepWork = std::map<std::pair<StepPhase, std::string>, KernelWork>;

std::size_t counter_number(const std::string& name) {
  const auto& all = emulation::counters();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& c) { return name == c.name; });
  return 1 + static_cast<std::size_t>(found - all.begin());
}

double value(const KernelWork& work, const char* counter) {
  return work.counters[counter_number(counter)];
}

StepWork summed(std::vector<emulation::LaunchRecord> launches) {
  StepWork step;
  StepPhase phase = StepPhase::forward;
  for (emulation::LaunchRecord& launch : launches) {
    phase = next_phase(phase, launch.file);
    KernelWork& work = step[{phase, kernel_label(launch.kernel, launch.file)}];
    work.counters.resize(1 + emulation::counters().size());
    work.counters[0] += 1;
    std::size_t i = 0;
    for (const auto& counter : emulation::counters()) {
      work.counters[++i] += static_cast<double>(counter.of(launch.work));
    }
    work.threads = std::max(work.threads, static_cast<int>(launch.threads));
    work.shared_bytes = std::max(work.shared_bytes,
                                 static_cast<double>(launch.static_bytes + launch.dynamic_bytes));
  }
  return step;
}

StepWork count_step(const ResolvedConfig& run) {
  StepWork work;
  run_ranks({.device = first_device(run.config.runtime), .threads = 0}, [&](Communicator& world) {
    choose_kernels(run.config);
    TrainingSession session(run, world);
    context().compute_stream().synchronize();
    emulation::start_launch_list();
    session.step(1, random_tokens(run.config.data, session.model().shape().vocab_size));
    communication_stream().synchronize();
    context().compute_stream().synchronize();
    work = summed(emulation::take_launch_list());
  });
  return work;
}

// ---- Steps of other sizes

class Workload {
 public:
  explicit Workload(const WorkloadOptions& options) : options_(options) {
    options_.overrides.insert(
        options_.overrides.begin(),
        {"runtime.device=cuda", "runtime.compute_dtype=bf16", "data.batch_size=4"});
    full_ = resolve(with_batch_size(workload(options_.model, options_.overrides), /*ranks=*/1));
    shape_ = make_model(full_)->shape();
    units_ = std::gcd(shape_.heads, shape_.kv_heads);
  }

  const TransformerShape& shape() const { return shape_; }
  const ResolvedConfig& full() const { return full_; }

  StepSize full_size() const {
    const DataConfig& data = full_.config.data;
    return {static_cast<double>(shape_.layers), static_cast<double>(units_),
            static_cast<double>(data.sequence_length), static_cast<double>(shape_.vocab_size),
            static_cast<double>(data.batch_size)};
  }

  /// The head's classes leave the same remainder as the model's, for the same alignment.
  Extrapolation extrapolation() const {
    const double step = static_cast<double>(std::max<std::int64_t>(1, units_ / 6));
    return Extrapolation({step, 2 * step, 3 * step}, {128, 256, 384}, classes(1024), classes(2048));
  }
  StepSize check_size() const {
    const double step = static_cast<double>(std::max<std::int64_t>(1, units_ / 6));
    return {3, std::min(4 * step, static_cast<double>(units_)), 512, classes(1536), 2};
  }

  ResolvedConfig at(const StepSize& size) const {
    const auto share = [&](std::int64_t full) {
      return full * static_cast<std::int64_t>(size.width) / units_;
    };
    std::vector<std::string> settings = options_.overrides;
    const auto set = [&](const char* key, double value) {
      settings.push_back(fmt::format("{}={}", key, static_cast<std::int64_t>(value)));
    };
    const auto set_share = [&](const char* key, std::int64_t full) {
      if (full > 0) set(key, static_cast<double>(share(full)));
    };
    set("model.layers", size.layers);
    set_share("model.heads", shape_.heads);
    set_share("model.width", shape_.width);
    if (shape_.gated_mlp) {
      set_share("model.kv_heads", shape_.kv_heads);
      set("model.head_size", static_cast<double>(shape_.head_size));
      set_share("model.mlp_width", shape_.mlp_width);
    }
    set_share("model.expert_width", shape_.experts.width);
    set("model.vocab_size", size.classes);
    set("data.sequence_length", size.sequence);
    set("data.batch_size", size.batch);
    return resolve(with_batch_size(workload(options_.model, settings), /*ranks=*/1));
  }

 private:
  double classes(std::int64_t least) const {
    return static_cast<double>(least + shape_.vocab_size % 128);
  }

  WorkloadOptions options_;
  ResolvedConfig full_;
  TransformerShape shape_;
  std::int64_t units_ = 1;
};

/// The sum of the steps' counters with these weights.
StepWork combine(const std::vector<StepWork>& steps, const std::vector<double>& weights) {
  StepWork sum;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const auto& [key, work] : steps[i]) {
      KernelWork& total = sum[key];
      total.counters.resize(work.counters.size());
      for (std::size_t c = 0; c < work.counters.size(); ++c) {
        total.counters[c] += weights[i] * work.counters[c];
      }
      total.threads = std::max(total.threads, work.threads);
      total.shared_bytes = std::max(total.shared_bytes, work.shared_bytes);
    }
  }
  for (auto& [key, work] : sum) {
    for (double& counter : work.counters) counter = std::round(counter);
  }
  return sum;
}

struct Difference {
  std::string phase, kernel, counter;
  double extrapolated, counted;
};

/// The switches between threads and the shapes of blocks are not the kernel's work.
bool is_work(const std::string& counter) {
  return counter != "switches" && counter != "blocks" && counter != "collectives" &&
         counter != "barriers";
}

std::vector<Difference> differences(const StepWork& extrapolated, const StepWork& counted) {
  std::vector<Difference> list;
  const auto compare = [&](const auto& key, std::size_t c, const std::string& name) {
    const auto at = [&](const StepWork& step) {
      const auto found = step.find(key);
      return found == step.end() ? 0.0 : found->second.counters[c];
    };
    if (is_work(name) && at(extrapolated) != at(counted)) {
      list.push_back({name_of_phase(key.first), key.second, name, at(extrapolated), at(counted)});
    }
  };
  StepWork all = extrapolated;
  all.insert(counted.begin(), counted.end());
  for (const auto& [key, work] : all) {
    compare(key, 0, "launches");
    std::size_t c = 0;
    for (const auto& counter : emulation::counters()) compare(key, ++c, counter.name);
  }
  return list;
}

// ---- The report

double distinct_bytes(const KernelWork& work) {
  return 32.0 * (value(work, "reads.distinct") + value(work, "writes.distinct"));
}

double roofline(const Gpu& gpu, const KernelWork& work) {
  return roofline_time(gpu, value(work, "matrix_flops"), distinct_bytes(work));
}

double expected(const Gpu& gpu, StepPhase phase, const std::string& kernel, const KernelWork& work,
                const TransformerShape& shape) {
  return roofline_time(
      gpu, value(work, "matrix_flops"), distinct_bytes(work),
      efficiency_of(kernel, phase == StepPhase::backward, static_cast<double>(shape.head_size)));
}

nlohmann::ordered_json rows_of(const StepWork& step, const TransformerShape& shape,
                               const std::map<std::string, int>& registers) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& [key, work] : step) {
    nlohmann::ordered_json row = {{"phase", name_of_phase(key.first)},
                                  {"kernel", key.second},
                                  {"launches", work.counters[0]}};
    std::size_t c = 0;
    for (const auto& counter : emulation::counters()) row[counter.name] = work.counters[++c];
    const int most = registers_of(registers, key.second);
    row["threads"] = work.threads;
    row["shared_bytes"] = work.shared_bytes;
    row["registers"] = most > 0 ? nlohmann::ordered_json(most) : nlohmann::ordered_json();
    for (const Gpu& gpu : gpus()) {
      const std::string name(gpu.name);
      row["roofline_us"][name] = 1e6 * roofline(gpu, work);
      row["expected_us"][name] = 1e6 * expected(gpu, key.first, key.second, work, shape);
      if (most > 0) {
        row["occupancy"][name] = occupancy(gpu, most, work.threads, work.shared_bytes);
      }
    }
    rows.push_back(row);
  }
  return rows;
}

nlohmann::ordered_json layer_entries(const StepWork& layer, const Workload& workload) {
  double launches[3] = {}, bytes[3] = {}, asked[3] = {};
  for (const auto& [key, work] : layer) {
    const auto phase = static_cast<std::size_t>(key.first);
    launches[phase] += work.counters[0];
    const bool is_library = key.second.find('/') == std::string::npos;
    if (is_library) continue;
    bytes[phase] += distinct_bytes(work);
    asked[phase] += 32.0 * (value(work, "reads.sectors") + value(work, "writes.sectors"));
  }
  const DataConfig& data = workload.full().config.data;
  const LayerBytes least =
      least_layer_bytes(workload.shape(), data.batch_size * data.sequence_length);
  return {{"launches_forward", launches[0]},      {"launches_backward", launches[1]},
          {"own_bytes_forward", bytes[0]},        {"own_bytes_backward", bytes[1]},
          {"own_sector_bytes_forward", asked[0]}, {"own_sector_bytes_backward", asked[1]},
          {"least_bytes_forward", least.forward}, {"least_bytes_backward", least.backward}};
}

nlohmann::ordered_json sums_of(const StepWork& step, const Workload& workload) {
  const DataConfig& data = workload.full().config.data;
  const double flops = training_flops(workload.shape(), data.batch_size, data.sequence_length);
  nlohmann::ordered_json sums;
  for (const Gpu& gpu : gpus()) {
    double ideal = 0, likely = 0;
    for (const auto& [key, work] : step) {
      ideal += roofline(gpu, work);
      likely += expected(gpu, key.first, key.second, work, workload.shape());
    }
    sums[std::string(gpu.name)] = {{"roofline_ms", 1e3 * ideal},
                                   {"expected_ms", 1e3 * likely},
                                   {"mfu", flops / likely / gpu.flops_per_second}};
  }
  return sums;
}

void print(const nlohmann::ordered_json& report) {
  const auto number = [](const nlohmann::ordered_json& at, const char* key) {
    return at[key].get<double>();
  };
  fmt::print("{}: {}; all figures are counted, none is measured\n",
             report["model"].get<std::string>(), report["describes"].get<std::string>());
  fmt::print("{:<10}{:<42}{:>8}{:>10}{:>10}{:>10}{:>10}{:>5}{:>7}{:>10}{:>10}{:>10}{:>10}\n",
             "phase", "kernel", "launches", "asked MB", "sectors", "distinct", "GFLOP", "regs",
             "shared", "H200 us", "H100 us", "A100 us", "4090 us");
  for (const auto& row : report["kernels"]) {
    const auto traffic = [&](const char* kind, double each) {
      return 1e-6 * each *
             (number(row, fmt::format("reads.{}", kind).c_str()) +
              number(row, fmt::format("writes.{}", kind).c_str()));
    };
    fmt::print("{:<10}{:<42}{:>8.0f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>5}{:>7.0f}",
               row["phase"].get<std::string>(), row["kernel"].get<std::string>(),
               number(row, "launches"), traffic("bytes", 1), traffic("sectors", 32),
               traffic("distinct", 32), 1e-9 * number(row, "matrix_flops"),
               row["registers"].is_null() ? "-" : row["registers"].dump(),
               number(row, "shared_bytes"));
    for (const Gpu& gpu : gpus()) {
      fmt::print("{:>10.1f}", row["roofline_us"][std::string(gpu.name)].get<double>());
    }
    fmt::print("\n");
  }
  const auto& layer = report["layer"];
  for (const char* phase : {"forward", "backward"}) {
    const auto of = [&](const char* figure) {
      return number(layer, fmt::format("{}_{}", figure, phase).c_str());
    };
    fmt::print(
        "a layer, {:<8} {:>3.0f} launches; own kernels {:.2f} MB ({:.2f} in sectors asked for), "
        "least possible {:.2f} MB: {:.3f}\n",
        phase, of("launches"), 1e-6 * of("own_bytes"), 1e-6 * of("own_sector_bytes"),
        1e-6 * of("least_bytes"), of("own_bytes") / of("least_bytes"));
  }
  for (const auto& [gpu, sum] : report["sums"].items()) {
    fmt::print("{:<5} roofline {:>9.2f} ms, expected {:>9.2f} ms, MFU implied {:.3f}\n", gpu,
               number(sum, "roofline_ms"), number(sum, "expected_ms"), number(sum, "mfu"));
  }
  if (!report.contains("check")) return;
  const auto& check = report["check"];
  fmt::print("check: {} of {} counters of a larger step are as extrapolated\n",
             check["counters"].get<std::size_t>() - check["differ"].size(),
             check["counters"].get<std::size_t>());
  for (const auto& entry : check["differ"]) {
    fmt::print("  {} {} {}: extrapolated {:.0f}, counted {:.0f}\n",
               entry["phase"].get<std::string>(), entry["kernel"].get<std::string>(),
               entry["counter"].get<std::string>(), number(entry, "extrapolated"),
               number(entry, "counted"));
  }
}

nlohmann::ordered_json check_entries(const std::vector<StepWork>& steps, const Workload& workload,
                                     const Extrapolation& extrapolation) {
  const StepSize size = workload.check_size();
  const StepWork counted = count_step(workload.at(size));
  const StepWork extrapolated = combine(steps, extrapolation.weights(size));
  nlohmann::ordered_json differ = nlohmann::ordered_json::array();
  for (const Difference& d : differences(extrapolated, counted)) {
    differ.push_back({{"phase", d.phase},
                      {"kernel", d.kernel},
                      {"counter", d.counter},
                      {"extrapolated", d.extrapolated},
                      {"counted", d.counted}});
  }
  std::size_t work_counters = 1;
  for (const auto& counter : emulation::counters()) work_counters += is_work(counter.name) ? 1 : 0;
  return {{"counters", counted.size() * work_counters}, {"differ", differ}};
}

void run(const Options& options) {
  emulation::DeviceOptions device = emulation::device_options();
  device.progress = emulation::Progress::eager;  // launches run in the order of the calls
  device.memory_bytes = std::size_t{32} << 30;
  const emulation::DeviceOptionsGuard guard(device);

  const Workload workload(options.workload);
  const Extrapolation extrapolation = workload.extrapolation();
  std::vector<StepWork> steps;
  for (const StepSize& size : extrapolation.runs()) {
    steps.push_back(count_step(workload.at(size)));
    fmt::print(stderr, "\rcounted {} of {} steps", steps.size(), extrapolation.runs().size());
  }
  fmt::print(stderr, "\n");
  const StepSize full = workload.full_size();
  const StepWork step = combine(steps, extrapolation.weights(full));
  const StepWork layer = combine(steps, extrapolation.layer_weights(full));

  RankContext rank({.device = first_device(workload.full().config.runtime)});
  const ContextGuard here(rank);
  nlohmann::ordered_json report = new_report("bench_counts");
  report["model"] = options.workload.model;
  report["describes"] =
      fmt::format("{}, batch {} x {}", describe_model(workload.full()), full.batch, full.sequence);
  std::ifstream usage(options.registers);
  report["kernels"] = rows_of(step, workload.shape(), read_registers(usage));
  report["layer_kernels"] = rows_of(layer, workload.shape(), {});
  report["layer"] = layer_entries(layer, workload);
  report["sums"] = sums_of(step, workload);
  if (options.check) report["check"] = check_entries(steps, workload, extrapolation);
  print(report);
  write_report(options.json, report);
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  tessera::Options options;
  CLI::App app("Counts the work of a training step on the emulated GPU", "bench_counts");
  tessera::add_workload_options(app, options.workload);
  app.get_option("--model")->required();
  app.add_option("--registers", options.registers,
                 "The output of cuobjdump --dump-resource-usage for a build with nvcc")
      ->check(CLI::ExistingFile);
  app.add_flag("!--no-check", options.check, "Do not compare with a larger step");
  app.add_option("--json", options.json, "Also write the figures to this file");
  return tessera::run_main(app, count, arguments, [&] {
    tessera::run(options);
    return 0;
  });
}
