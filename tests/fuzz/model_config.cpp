// Fuzz target: the config.json of a model of any family.
#include <nlohmann/json.hpp>
#include <variant>

#include "models/registry.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "tests/fuzz/fuzz.h"

namespace tessera::fuzz {
namespace {

/// Writes the hyperparameters and reads them again.
void check_written(const Hyperparameters& hyperparameters) {
  const auto written = [](const Hyperparameters& given) {
    return std::visit([](const auto& config) { return to_json(config); }, given);
  };
  const nlohmann::json first = written(hyperparameters);
  const ModelFamily& family = family_of(hyperparameters);
  std::string second;
  const bool read =
      reads([&] { second = written(family.config_from(parse_json(first.dump()))).dump(); });
  require(read, "a config.json that is read can be written and read again");
  require(second == first.dump(), "reading a config.json that was written changes nothing");
}

/// Makes the model if it has few modules; parameters take no memory.
void make_if_small(const Hyperparameters& hyperparameters) {
  if (shape_of(hyperparameters).layers <= 8) make_model(hyperparameters);
}

}  // namespace

bool accepts(std::string_view input) {
  enter_context();
  return reads([&] {
    const nlohmann::json config = parse_json(input);
    check(config.is_object(), "config.json is not an object");
    const Hyperparameters hyperparameters = family_of(config).config_from(config);
    check_written(hyperparameters);
    make_if_small(hyperparameters);
  });
}

}  // namespace tessera::fuzz
