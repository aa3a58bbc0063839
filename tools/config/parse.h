// Reading and writing configurations.
//
// A configuration is a YAML file of sections (model, data, optimizer, sharding, runtime, train),
// each a map from keys to values; keys left out keep their defaults. After the file come overrides
// of the form "data.batch_size=4" from the command line; the last one for a key wins. Paths are
// relative to the working directory.
//
// What is wrong is reported as an Error that names file and line (or "command line"), the key, what
// was expected and what was found; an unknown name comes with the nearest known one.
#pragma once

#include <filesystem>
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

/// Every key with its value, as YAML that parse_config reads back to the same configuration.
std::string to_yaml(const Config& config);

}  // namespace tessera
