// Configurations by the name that a command line gives.
#pragma once

#include <span>
#include <string>

#include "tools/config/config.h"

namespace tessera {

/// The configuration in the file `name`; or, if there is no such file, that of the preset `name`
/// (model.preset), in which other keys have the values of the YAML text `with_preset`, or their
/// defaults. Overrides come after either (tools/config/parse.h). Raises Error with the nearest
/// preset if `name` is neither.
Config find_config(const std::string& name, std::span<const std::string> overrides,
                   const std::string& with_preset = "");

}  // namespace tessera
