#include "tools/bench/counts/emulated/step_work.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/check.h"

namespace tessera {

const std::vector<std::string>& step_counters() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"launches"};
    for (const auto& counter : emulation::counters()) all.emplace_back(counter.name);
    return all;
  }();
  return names;
}

bool is_work(const std::string& counter) {
  return counter != "switches" && counter != "blocks" && counter != "collectives" &&
         counter != "barriers";
}

double KernelWork::operator[](const std::string& counter) const {
  const auto& names = step_counters();
  const auto found = std::find(names.begin(), names.end(), counter);
  check(found != names.end(), "there is no counter '{}'", counter);
  return counters[static_cast<std::size_t>(found - names.begin())];
}

double KernelWork::distinct_bytes() const {
  return 32.0 * ((*this)["reads.distinct"] + (*this)["writes.distinct"]);
}

StepWork summed(std::vector<emulation::LaunchRecord> launches) {
  StepWork step;
  StepPhase phase = StepPhase::forward;
  for (emulation::LaunchRecord& launch : launches) {
    const std::string label = kernel_label(launch.kernel, launch.file);
    phase = next_phase(phase, label);
    KernelWork& work = step[{phase, label}];
    work.counters[0] += 1;
    std::size_t i = 0;
    for (const auto& counter : emulation::counters()) {
      work.counters[++i] += static_cast<double>(counter.of(launch.work));
    }
  }
  return step;
}

nlohmann::json to_json(const StepWork& step) {
  nlohmann::json json = nlohmann::json::array();
  for (const auto& [key, work] : step) {
    json.push_back({static_cast<int>(key.first), key.second, work.counters});
  }
  return json;
}

StepWork step_work_of(const nlohmann::json& json) {
  StepWork step;
  for (const nlohmann::json& entry : json) {
    step[{static_cast<StepPhase>(entry[0].get<int>()), entry[1]}].counters =
        entry[2].get<std::vector<double>>();
  }
  return step;
}

double launches_in(const StepWork& step, StepPhase phase) {
  double launches = 0;
  for (const auto& [key, work] : step) {
    if (key.first == phase) launches += work["launches"];
  }
  return launches;
}

StepWork combine(const std::vector<StepWork>& steps, const std::vector<double>& weights) {
  StepWork sum;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const auto& [key, work] : steps[i]) {
      KernelWork& total = sum[key];
      for (std::size_t c = 0; c < work.counters.size(); ++c) {
        total.counters[c] += weights[i] * work.counters[c];
      }
    }
  }
  for (auto& [key, work] : sum) {
    for (double& counter : work.counters) counter = std::round(counter);
  }
  return sum;
}

std::vector<Difference> differences(const StepWork& extrapolated, const StepWork& counted) {
  std::vector<Difference> list;
  StepWork all = extrapolated;
  all.insert(counted.begin(), counted.end());
  for (const auto& [key, work] : all) {
    for (const std::string& counter : step_counters()) {
      const auto in = [&, &key = key](const StepWork& step) {
        const auto found = step.find(key);
        return found == step.end() ? 0.0 : found->second[counter];
      };
      if (is_work(counter) && in(extrapolated) != in(counted)) {
        list.push_back({std::string(enum_name(key.first)), key.second, counter, in(extrapolated),
                        in(counted)});
      }
    }
  }
  return list;
}

}  // namespace tessera
