#include "tools/plan/machine_file.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/enum_names.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "tools/data/json_entries.h"
#include "tools/measure/sustained_rate.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

/// A GPU's data sheet: dense rates without sparsity, in 10^12 operations and 10^9 bytes per second.
/// `link` is NVLink's rate in one direction, `bus` that of PCIe with 16 lanes of generation 4 or 5. The
/// network is one NDR or HDR port per GPU, and the host has two CPUs with 8 channels of memory each
/// (DDR4-3200 and DDR5-4800), as in NVIDIA's own systems.
struct DataSheet {
  const char* name;
  const char* source;
  double bf16, fp8, f32, memory, link, network, bus, host_memory;
};

constexpr DataSheet kSheets[] = {
    {"a100", "NVIDIA A100 80GB data sheet (2021), DGX A100", 312, 312, 19.5, 2039, 300, 25, 32,
     409.6},
    {"h100", "NVIDIA H100 SXM data sheet (2022), DGX H100", 989.4, 1978.9, 66.9, 3350, 450, 50, 64,
     614.4},
    {"h200", "NVIDIA H200 SXM data sheet (2023), DGX H200", 989.4, 1978.9, 66.9, 4800, 450, 50, 64,
     614.4},
    {"h200-sustained",
     "DGX H200, with the 16-bit products' rate in steps (docs/gpu_results.md), and twice it in 8 "
     "bits",
     1e-12 * kH200SustainedRate.flops_per_second, 2e-12 * kH200SustainedRate.flops_per_second, 66.9,
     4800, 450, 50, 64, 614.4},
};

MachineRates machine_of(const DataSheet& sheet) {
  MachineRates machine{
      .name = sheet.name, .source = fmt::format("data sheet: {}", sheet.source), .rings = true};
  const std::pair<DType, double> rates[] = {{DType::bf16, sheet.bf16},
                                            {DType::f16, sheet.bf16},
                                            {DType::f32, sheet.f32},
                                            {DType::e4m3, sheet.fp8}};
  for (const auto& [dtype, teraflops] : rates) {
    const double flops = 1e12 * teraflops;
    machine.compute.push_back(
        {.dtype = dtype, .forward = flops, .backward = flops, .memory = 1e9 * sheet.memory});
  }
  machine.links = {{.bandwidth = 1e9 * sheet.link}};
  machine.network = Link{.bandwidth = 1e9 * sheet.network};
  machine.host =
      HostRates{.link = {.bandwidth = 1e9 * sheet.bus}, .memory = 1e9 * sheet.host_memory};
  return machine;
}

int whole(const JsonEntries& entries, const char* key, int least) {
  return static_cast<int>(entries.integer(key, least, 1 << 20));
}

Link link_of(const JsonEntries& entries) {
  return {.ranks = whole(entries, "ranks", 1),
          .latency = 1e-6 * entries.number("latency_us", /*zero=*/true),
          .bandwidth = entries.number("bytes_per_second")};
}

ComputeRates rates_of(const JsonEntries& entries) {
  return {.ranks = whole(entries, "ranks", 1),
          .threads = whole(entries, "threads", 1),
          .dtype = enum_from_name<DType>(entries.text("dtype")),
          .forward = entries.number("forward_flops_per_second"),
          .backward = entries.number("backward_flops_per_second"),
          .memory = entries.number("memory_bytes_per_second")};
}

MachineRates machine_of(const JsonEntries& entries) {
  MachineRates machine{.name = entries.text("name"),
                       .source = entries.text("source"),
                       .cores = whole(entries, "cores", 0),
                       .rings = entries.flag("rings"),
                       .switch_adds = entries.has("switch_adds") && entries.flag("switch_adds")};
  for (const JsonEntries& one : entries.objects("compute")) {
    machine.compute.push_back(rates_of(one));
  }
  for (const JsonEntries& one : entries.objects("links")) machine.links.push_back(link_of(one));
  if (entries.has("network")) machine.network = link_of(entries.object("network"));
  if (entries.has("host")) {
    const JsonEntries host = entries.object("host");
    machine.host = HostRates{.link = link_of(host.object("link")),
                             .memory = host.number("memory_bytes_per_second")};
  }
  return machine;
}

Json json_of(const Link& link) {
  return {{"ranks", link.ranks},
          {"latency_us", 1e6 * link.latency},
          {"bytes_per_second", link.bandwidth}};
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

}  // namespace

MachineRates load_machine(const std::string& file_or_name) {
  std::vector<std::string> names;
  for (const DataSheet& sheet : kSheets) {
    if (file_or_name == sheet.name) return machine_of(sheet);
    names.emplace_back(sheet.name);
  }
  check(std::filesystem::exists(file_or_name),
        "--machine {}: there is no such file; write it with bench_step --fit and bench_collectives "
        "--fit, or name one of {}",
        file_or_name, fmt::join(names, ", "));
  const nlohmann::json json = read_json_file(file_or_name);
  try {
    return machine_of(JsonEntries(json));
  } catch (const Error& error) {
    fail("{}: {}", file_or_name, error.what());
  }
}

MachineRates machine_to_fit(const std::filesystem::path& file, int cores) {
  if (std::filesystem::exists(file)) return load_machine(file.string());
  return {.name = fmt::format("{}, {} core{}", cpu_name(), cores, cores == 1 ? "" : "s"),
          .source = "measured",
          .cores = cores};
}

void replace_rates(MachineRates& machine, const ComputeRates& rates) {
  std::erase_if(machine.compute, [&](const ComputeRates& old) {
    return old.ranks == rates.ranks && old.threads == rates.threads && old.dtype == rates.dtype;
  });
  machine.compute.push_back(rates);
}

void replace_link(MachineRates& machine, const Link& link) {
  std::erase_if(machine.links, [&](const Link& old) { return old.ranks == link.ranks; });
  machine.links.push_back(link);
}

void write_machine(const std::filesystem::path& file, const MachineRates& machine) {
  Json json = {{"name", machine.name},   {"source", machine.source}, {"cores", machine.cores},
               {"rings", machine.rings}, {"compute", Json::array()}, {"links", Json::array()}};
  for (const ComputeRates& rates : machine.compute) {
    json["compute"].push_back({{"ranks", rates.ranks},
                               {"threads", rates.threads},
                               {"dtype", std::string(name_of(rates.dtype))},
                               {"forward_flops_per_second", rates.forward},
                               {"backward_flops_per_second", rates.backward},
                               {"memory_bytes_per_second", rates.memory}});
  }
  for (const Link& link : machine.links) json["links"].push_back(json_of(link));
  if (machine.switch_adds) json["switch_adds"] = true;
  if (machine.network) json["network"] = json_of(*machine.network);
  if (machine.host) {
    json["host"] = {{"link", json_of(machine.host->link)},
                    {"memory_bytes_per_second", machine.host->memory}};
  }
  write_file_atomically(file, json.dump(2) + "\n");
}

}  // namespace tessera
