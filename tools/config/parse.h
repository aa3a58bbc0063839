// Reading and writing configurations.
//
// A configuration is a YAML file of sections (model, adapter, data, optimizer, sharding, runtime, kernels,
// train, sample), each a map from keys to values. Missing keys keep their defaults. Overrides of
// the form "data.batch_size=4" from the command line come after the file; the last one for a key
// wins. Paths are relative to the working directory.
//
// An Error names the file and line (or "command line"), the key, the expected and the given value.
// With an unknown name it names the nearest known one, or the one that other trainers' name means.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "tools/config/config.h"

namespace tessera {

/// The configuration in `file` with `overrides` applied.
Config load_config(const std::filesystem::path& file, std::span<const std::string> overrides = {});

/// The same from YAML text; errors call it `source`.
Config parse_config(const std::string& yaml, const std::string& source,
                    std::span<const std::string> overrides = {});

/// Sets keys of `config` by texts of the form key=value. Errors name `place`.
void set_keys(Config& config, std::span<const std::string> settings, const std::string& place);

/// Every key with its value, as YAML that parse_config reads back to the same configuration.
std::string to_yaml(const Config& config);

/// Every key with its value as text, for reports: {"model.preset": "gpt2", ...}.
nlohmann::ordered_json config_entries(const Config& config);

/// Runs `body`, which checks values of `config` together. If it raises Error, the message gets the
/// place of the first key that it names: "run.yaml:7: optimizer.warmup_steps 20 is more than ...".
/// A message without a configured key stays as it is.
void check_with_place(const Config& config, const std::function<void()>& body);

/// The same for a `body` that uses the value of one key: "run.yaml:7: data.val: cannot open ...".
void check_key(const Config& config, std::string_view key, const std::function<void()>& body);

}  // namespace tessera
