#include "tools/bench/sustained_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tessera {
namespace {

double number(const nlohmann::ordered_json& entries, const char* key) {
  return entries[key].get<double>();
}

}  // namespace

nlohmann::ordered_json sustained_entries(const Sustained& sustained, const StepSizes& step) {
  const double seconds = sustained.seconds / static_cast<double>(sustained.runs);
  const GpuMeans& gpu = sustained.gpu;
  nlohmann::ordered_json entries = {{"steps", sustained.runs},
                                    {"step_ms", 1e3 * seconds},
                                    {"tokens_per_second", step.tokens / seconds},
                                    {"mfu", nullptr},
                                    {"samples", gpu.samples}};
  if (step.peak) entries["mfu"] = step.flops / seconds / *step.peak;
  if (gpu.samples == 0) {
    entries["reason"] = sustained.reason;
    return entries;
  }
  entries.update({{"sm_mhz", gpu.sm_mhz},
                  {"watts", gpu.watts},
                  {"joules_per_token", gpu.watts * seconds / step.tokens},
                  {"clock_event_reasons", gpu.reasons}});
  return entries;
}

void print_sustained(const nlohmann::ordered_json& entries) {
  const std::string mfu =
      entries["mfu"].is_null() ? "" : fmt::format("MFU {:.3f}, ", number(entries, "mfu"));
  fmt::print("  sustained  {:>9.2f} ms  {:.0f} tokens/s, {}{} step{} without a pause\n",
             number(entries, "step_ms"), number(entries, "tokens_per_second"), mfu,
             entries["steps"].get<std::int64_t>(), entries["steps"] == 1 ? "" : "s");
  if (!entries.contains("watts")) {
    fmt::print("  clock        unknown  {}\n", entries["reason"].get<std::string>());
    return;
  }
  fmt::print("  clock      {:>9.0f} MHz  mean of {} samples\n", number(entries, "sm_mhz"),
             entries["samples"].get<std::size_t>());
  fmt::print("  power      {:>9.0f} W  {:.3f} mJ per token\n", number(entries, "watts"),
             1e3 * number(entries, "joules_per_token"));
  for (const auto& [name, share] : entries["clock_event_reasons"].items()) {
    fmt::print("             {:>9.2f}  of the time {}\n", share.get<double>(), name);
  }
}

}  // namespace tessera
