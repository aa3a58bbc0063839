// Command-line options that the benchmarks share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/device.h"
#include "tools/program/options.h"

namespace tessera {

/// The configuration that a person asks for: tools/measure/workload.h turns it into a Config.
struct WorkloadOptions {
  std::string model;
  std::vector<std::string> overrides;
};

/// Adds --model, key=value overrides, and short forms of some keys (--batch for data.batch_size).
/// Returns --model.
Option add_workload_options(Command& app, WorkloadOptions& options);

/// The key that such a short form stands for: data.batch_size for "batch". Empty for other names.
std::string_view key_of_short_form(std::string_view name);

/// The device that an option `--device` names. Raises Error if it names none.
Device device_of_option(const std::string& text);

}  // namespace tessera
