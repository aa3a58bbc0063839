// Preset: a named configuration of a family of models.
#pragma once

#include <string_view>
#include <vector>

namespace tessera {

template <typename Config>
struct Preset {
  std::string_view name;
  Config config;
};

template <typename Config>
using Presets = std::vector<Preset<Config>>;

}  // namespace tessera
