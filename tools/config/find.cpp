#include "tools/config/find.h"

#include <filesystem>
#include <vector>

#include "models/registry.h"
#include "runtime/check.h"
#include "runtime/nearest.h"
#include "tools/config/parse.h"

namespace tessera {

Config find_config(const std::string& name, std::span<const std::string> overrides,
                   const std::string& with_preset) {
  if (std::filesystem::exists(name)) return load_config(name, overrides);
  std::vector<std::string> presets;
  for (const std::string_view preset : model_presets()) presets.emplace_back(preset);
  const bool known = std::find(presets.begin(), presets.end(), name) != presets.end();
  const auto nearest = nearest_name(name, presets);
  check(known, "{}: there is no such file, and no preset of this name; {}", name,
        nearest ? fmt::format("did you mean {}?", *nearest)
                : fmt::format("the presets are {}", fmt::join(presets, ", ")));
  std::vector<std::string> settings = {"model.preset=" + name};
  settings.insert(settings.end(), overrides.begin(), overrides.end());
  return parse_config(with_preset, "preset " + name, settings);
}

}  // namespace tessera
