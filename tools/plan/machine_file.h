// Machine files: a machine's rates as JSON, for `tessera plan --machine`.
//
//   {"name": "Xeon, 2 cores", "source": "measured", "cores": 2, "rings": false,
//    "compute": [{"ranks": 2, "threads": 1, "dtype": "f32", "forward_flops_per_second": 4e10,
//                 "backward_flops_per_second": 3e10, "memory_bytes_per_second": 8e9}],
//    "links": [{"ranks": 2, "latency_us": 5, "bytes_per_second": 6e9}],
//    "network": {"ranks": 2, "latency_us": 20, "bytes_per_second": 1e9}}
//
// bench_step --fit and bench_collectives --fit write them. sharding/plan/machine_rates.h explains the
// numbers; "network" may be absent, and so may "switch_adds": true, for a switch that adds (NVLink SHARP).
// examples/h100_sharp.json is an example.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "sharding/plan/machine_rates.h"

namespace tessera {

/// The machine of this file, or GPUs whose rates are known from data sheets: "a100", "h100", "h200"; or
/// "h200-sustained", with the rate that products keep in steps (tools/measure/sustained_rate.h).
/// Raises Error with the file and the entry if it cannot be read.
MachineRates load_machine(const std::string& file_or_name);

/// The file's machine, or a new one without rates named after the CPU if there is no file.
MachineRates machine_to_fit(const std::filesystem::path& file, int cores);
/// Puts the rates in place of those for the same ranks, threads and dtype.
void replace_rates(MachineRates& machine, const ComputeRates& rates);
void replace_link(MachineRates& machine, const Link& link);
/// Writes a machine file atomically.
void write_machine(const std::filesystem::path& file, const MachineRates& machine);

}  // namespace tessera
