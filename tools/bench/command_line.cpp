#include "tools/bench/command_line.h"

#include <CLI/CLI.hpp>

#include "runtime/check.h"

namespace tessera {

void add_workload_options(CLI::App& app, WorkloadOptions& options) {
  app.add_option("--model", options.model, "A configuration file, a preset, or tiny")
      ->capture_default_str();
  app.add_option("overrides", options.overrides, "Keys to set, as for tessera train")
      ->type_name("key.path=value");
  const auto add_short_form = [&](const char* option, const std::string& key) {
    const auto set = [&options, key](const std::string& value) {
      options.overrides.push_back(key + "=" + value);
    };
    app.add_option_function<std::string>(option, set, "Short for " + key + "=...");
  };
  add_short_form("--batch", "data.batch_size");
  add_short_form("--sequence", "data.sequence_length");
  add_short_form("--device", "runtime.device");
  add_short_form("--dtype", "runtime.compute_dtype");
  add_short_form("--attention", "kernels.attention");
  add_short_form("--checkpointing", "sharding.activation_checkpointing");
}

Device device_of_option(const std::string& text) {
  const auto device = parse_device(text);
  check(device.has_value(), "--device is {}; expected auto, cpu, cuda or cuda:1", text);
  return *device;
}

}  // namespace tessera
