// The counted work of a training step, kernel by kernel.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runtime/emulation/device/emulator.h"
#include "tools/bench/counts/kernel_label.h"

namespace tessera {

/// The names of KernelWork's counters: "launches", then those of emulation::counters().
const std::vector<std::string>& step_counters();

/// Is the counter the kernel's work? The switches between threads and the shapes of blocks are not.
bool is_work(const std::string& counter);

/// The work of one kernel in one phase of a step.
struct KernelWork {
  std::vector<double> counters = std::vector<double>(step_counters().size());

  /// A counter by its name.
  double operator[](const std::string& counter) const;
  /// The sectors of each launch, once: the least traffic that a GPU can have.
  double distinct_bytes() const;
};

/// By phase and kernel_label().
using StepWork = std::map<std::pair<StepPhase, std::string>, KernelWork>;

/// The launches of a step in their order, added up by kernel.
StepWork summed(std::vector<emulation::LaunchRecord> launches);

/// A step's work as JSON, and back: it goes from one process to another.
nlohmann::json to_json(const StepWork& step);
StepWork step_work_of(const nlohmann::json& json);

/// The launches of all kernels in a phase.
double launches_in(const StepWork& step, StepPhase phase);

/// The sum of the steps' counters with these weights, rounded to whole numbers.
StepWork combine(const std::vector<StepWork>& steps, const std::vector<double>& weights);

/// A counter of work that is not as extrapolated.
struct Difference {
  std::string phase, kernel, counter;
  double extrapolated, counted;
};
std::vector<Difference> differences(const StepWork& extrapolated, const StepWork& counted);

}  // namespace tessera
