// bench_counts: the work of a training step, counted on the emulated GPU, and the time that it needs.
//
// Every kernel runs on the CPU, compiled so that its loads and stores are counted
// (docs/emulation.md). A step of a large model would take hours, so steps of small ones are counted:
// 27 of them, or 36 with experts, decide the polynomials of tools/bench/counts/extrapolation.h. One
// more, of another size, is counted and compared; counters that differ are listed. The backward pass of
// a norm is no polynomial, and is counted at its full size. A step is counted in a process of its own,
// since the emulated GPU runs one launch at a time.
//
// The roofline and the model FLOP/s utilization (MFU) that it implies follow from
// tools/bench/counts/roofline.h. Nothing here is measured: every figure is "counted".
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runtime/context.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "tools/bench/command_line.h"
#include "tools/bench/counts/emulated/count_norm.h"
#include "tools/bench/counts/emulated/count_step.h"
#include "tools/bench/counts/emulated/report.h"
#include "tools/bench/counts/print_counts.h"
#include "tools/bench/counts/processes.h"
#include "tools/bench/report.h"
#include "tools/program/command_line.h"

namespace tessera {
namespace {

struct Options {
  WorkloadOptions workload;
  bool check = true;
  double sustained = 0.0;  // 10^12 FLOP/s of products on an H200; 0: as known
  std::string json;
};

/// The work of a norm's backward pass, and then of steps of these sizes.
std::vector<StepWork> count_all(const ReducedModel& model, const std::vector<StepSize>& sizes) {
  const auto count = [&](std::size_t i) {
    return to_json(i == 0 ? count_norm_backward(model) : count_step(model.at(sizes[i - 1]))).dump();
  };
  const auto print = [&](std::size_t counted) {
    fmt::print(stderr, "\rcounted {} of {} parts", counted, sizes.size() + 1);
  };
  std::vector<StepWork> steps;
  for (const std::string& text : run_in_processes(sizes.size() + 1, count, print)) {
    steps.push_back(step_work_of(nlohmann::json::parse(text)));
  }
  fmt::print(stderr, "\n");
  return steps;
}

void run(const Options& options) {
  emulation::DeviceOptions device = emulation::device_options();
  device.progress = emulation::Progress::eager;  // launches run in the order of the calls
  device.memory_bytes = std::size_t{32} << 30;
  const emulation::DeviceOptionsGuard guard(device);

  const ReducedModel model(options.workload);
  const Extrapolation extrapolation = model.extrapolation();
  std::vector<StepSize> sizes = extrapolation.runs();
  if (options.check) sizes.push_back(model.check_size());
  std::vector<StepWork> steps = count_all(model, sizes);
  const nlohmann::ordered_json host_calls = host_call_entries(model);
  StepWork checked;
  if (options.check) {
    checked = std::move(steps.back());
    steps.pop_back();
  }
  const StepWork norm = steps.front();
  steps.erase(steps.begin());
  const StepSize full = model.full_size();
  StepWork step = combine(steps, extrapolation.weights(full));
  StepWork layer = combine(steps, extrapolation.layer_weights(full));
  take_norm_backward(step, layer, full.layers, norm);

  RankContext rank({.device = first_device(model.full().config.runtime)});
  const ContextGuard here(rank);
  nlohmann::ordered_json report = new_report("bench_counts");
  report["model"] = options.workload.model;
  report["describes"] =
      fmt::format("{}, batch {} x {}", describe_model(model.full()), full.batch, full.sequence);
  report["settings"] = options.workload.overrides;
  const std::vector<Gpu> all = gpus(1e12 * options.sustained);
  report["kernels"] = kernel_entries(step, model.shape(), all);
  report["layer_kernels"] = kernel_entries(layer, model.shape(), all);
  report["layer"] = layer_entries(layer, model);
  report["efficiencies"] = efficiency_entries(step, model.shape(), all.front());
  report["sums"] = sum_entries(step, model, all);
  report["host_calls"] = host_calls;
  if (options.check) {
    report["check"] =
        check_entries(combine(steps, extrapolation.weights(model.check_size())), checked);
  }
  print_counts(report);
  write_report(options.json, report);
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  tessera::Options options;
  tessera::Command app("bench_counts", "Counts the work of a training step on the emulated GPU");
  tessera::add_workload_options(app, options.workload).required();
  app.flag("!--no-check", options.check, "Do not compare with a larger step");
  app.option("--sustained", options.sustained,
             "10^12 FLOP/s of an H200's products in steps without a pause; 0: the known rate")
      .not_negative();
  app.option("--json", options.json, "Also write the figures to this file");
  return tessera::run_main(app, count, arguments, [&] {
    tessera::run(options);
    return 0;
  });
}
