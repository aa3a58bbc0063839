#include "tools/bench/command_line.h"

#include <utility>

#include "runtime/check.h"

namespace tessera {
namespace {

/// Options, and the keys that they set.
constexpr std::pair<std::string_view, std::string_view> kShortForms[] = {
    {"batch", "data.batch_size"},       {"sequence", "data.sequence_length"},
    {"device", "runtime.device"},       {"dtype", "runtime.compute_dtype"},
    {"attention", "kernels.attention"}, {"checkpointing", "sharding.activation_checkpointing"}};

}  // namespace

Option add_workload_options(Command& app, WorkloadOptions& options) {
  const Option model =
      app.option("--model", options.model, "A configuration file, a preset, or tiny");
  app.option("overrides", options.overrides, "Keys to set, as for tessera train")
      .type("key.path=value");
  for (const auto& [name, key] : kShortForms) {
    const auto set = [&options, key = key](const std::string& value) {
      options.overrides.push_back(fmt::format("{}={}", key, value));
    };
    app.option_function(fmt::format("--{}", name), set, fmt::format("Short for {}=...", key));
  }
  return model;
}

std::string_view key_of_short_form(std::string_view name) {
  for (const auto& [form, key] : kShortForms) {
    if (form == name) return key;
  }
  return {};
}

Device device_of_option(const std::string& text) {
  const auto device = parse_device(text);
  check(device.has_value(), "--device is {}; expected auto, cpu, cuda or cuda:1", text);
  return *device;
}

}  // namespace tessera
