#include "tools/bench/counts/emulated/report.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>

#include "tools/bench/counts/emulated/count_step.h"
#include "tools/bench/counts/layer_bytes.h"
#include "tools/bench/counts/processes.h"

namespace tessera {
namespace {

using Entries = nlohmann::ordered_json;

double roofline(const Gpu& gpu, const StepWork::value_type& kernel) {
  const auto& [key, work] = kernel;
  return roofline_time(gpu, work["matrix_flops"], work.distinct_bytes(),
                       {"", peak_of(key.second), 1.0, ""});
}

Efficiency efficiency_in(const Gpu& gpu, ProductRate rate, const StepWork::key_type& key,
                         const TransformerShape& shape) {
  return efficiency_of(gpu, rate, key.second, key.first == StepPhase::backward, shape);
}

double expected(const Gpu& gpu, ProductRate rate, const StepWork::value_type& kernel,
                const TransformerShape& shape) {
  const auto& [key, work] = kernel;
  return roofline_time(gpu, work["matrix_flops"], work.distinct_bytes(),
                       efficiency_in(gpu, rate, key, shape));
}

/// Neither a library's work nor a product of our own. A layer's least bytes are without products.
bool is_own(const std::string& kernel) {
  const bool is_library = kernel.find('/') == std::string::npos;
  return !is_library &&
         !is_product(efficiency_of({}, ProductRate::burst, kernel, /*backward=*/false, {}));
}

}  // namespace

Entries kernel_entries(const StepWork& step, const TransformerShape& shape,
                       const std::vector<Gpu>& gpus) {
  Entries entries = Entries::array();
  for (const auto& kernel : step) {
    const auto& [key, work] = kernel;
    Entries entry = {{"phase", enum_name(key.first)}, {"kernel", key.second}};
    for (const std::string& counter : step_counters()) entry[counter] = work[counter];
    for (const Gpu& gpu : gpus) {
      const std::string name(gpu.name);
      entry["roofline_us"][name] = 1e6 * roofline(gpu, kernel);
      entry["expected_us"][name] = 1e6 * expected(gpu, ProductRate::sustained, kernel, shape);
    }
    entries.push_back(entry);
  }
  return entries;
}

Entries layer_entries(const StepWork& layer, const ReducedModel& model) {
  double bytes[3] = {}, asked[3] = {};
  for (const auto& [key, work] : layer) {
    if (!is_own(key.second)) continue;
    const auto phase = static_cast<std::size_t>(key.first);
    bytes[phase] += work.distinct_bytes();
    asked[phase] += 32.0 * (work["reads.sectors"] + work["writes.sectors"]);
  }
  const DataConfig& data = model.full().config.data;
  const LayerBytes least = least_layer_bytes(model.shape(), data.batch_size * data.sequence_length);
  return {{"launches_forward", launches_in(layer, StepPhase::forward)},
          {"launches_backward", launches_in(layer, StepPhase::backward)},
          {"own_bytes_forward", bytes[0]},
          {"own_bytes_backward", bytes[1]},
          {"own_sector_bytes_forward", asked[0]},
          {"own_sector_bytes_backward", asked[1]},
          {"least_bytes_forward", least.forward},
          {"least_bytes_backward", least.backward}};
}

Entries sum_entries(const StepWork& step, const ReducedModel& model, const std::vector<Gpu>& gpus) {
  const DataConfig& data = model.full().config.data;
  const double flops = training_flops(model.shape(), data.batch_size, data.sequence_length);
  Entries sums;
  for (const Gpu& gpu : gpus) {
    double ideal = 0, likely = 0, burst = 0, optimizer = 0;
    for (const auto& kernel : step) {
      const double time = expected(gpu, ProductRate::sustained, kernel, model.shape());
      ideal += roofline(gpu, kernel);
      likely += time;
      burst += expected(gpu, ProductRate::burst, kernel, model.shape());
      if (kernel.first.first == StepPhase::optimizer) optimizer += time;
    }
    const auto mfu = [&](double time) { return flops / time / gpu.flops_per_second; };
    sums[std::string(gpu.name)] = {
        {"roofline_ms", 1e3 * ideal}, {"expected_ms", 1e3 * likely},
        {"mfu", mfu(likely)},         {"mfu_without_optimizer", mfu(likely - optimizer)},
        {"burst_ms", 1e3 * burst},    {"burst_mfu", mfu(burst)}};
  }
  return sums;
}

Entries efficiency_entries(const StepWork& step, const TransformerShape& shape, const Gpu& gpu) {
  std::set<std::tuple<std::string_view, double, double, std::string_view>> kinds;
  for (const auto& [key, work] : step) {
    for (const ProductRate rate : {ProductRate::burst, ProductRate::sustained}) {
      const auto [kind, of_flops, of_bytes, source] = efficiency_in(gpu, rate, key, shape);
      kinds.emplace(kind, of_flops, of_bytes, source);
    }
  }
  Entries entries = Entries::array();
  for (const auto& [kind, of_flops, of_bytes, source] : kinds) {
    entries.push_back(
        {{"kind", kind}, {"of_flops", of_flops}, {"of_bytes", of_bytes}, {"source", source}});
  }
  return entries;
}

Entries host_call_entries(const ReducedModel& model) {
  const auto count = [&](std::size_t job) {
    StepSize size = model.extrapolation().runs().front();
    size.layers = job % 2 == 0 ? 1 : 2;
    ResolvedConfig run = model.at(size);
    run.config.runtime.graph = job / 2 == 1;
    return nlohmann::json(count_host_calls(run)).dump();
  };
  const std::vector<std::string> texts = run_in_processes(4, count, [](std::size_t) {});
  const auto counted = [&](std::size_t job) {
    return nlohmann::json::parse(texts[job]).get<HostCallCounts>();
  };
  Entries entries;
  for (const std::size_t graph : {0, 1}) {
    HostCallCounts counts = counted(2 * graph);
    const HostCallCounts of_layer = counted(2 * graph + 1) - counts;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      counts[i] += (model.shape().layers - 1) * of_layer[i];
    }
    entries[graph == 1 ? "graph" : "queued"] = to_json(counts);
  }
  return entries;
}

Entries check_entries(const StepWork& extrapolated, const StepWork& counted) {
  Entries differ = Entries::array();
  for (const Difference& d : differences(extrapolated, counted)) {
    differ.push_back({{"phase", d.phase},
                      {"kernel", d.kernel},
                      {"counter", d.counter},
                      {"extrapolated", d.extrapolated},
                      {"counted", d.counted}});
  }
  const auto& names = step_counters();
  const auto of_work = static_cast<std::size_t>(std::count_if(names.begin(), names.end(), is_work));
  return {{"counters", counted.size() * of_work}, {"differ", differ}};
}

}  // namespace tessera
