#include "models/adapters.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/check.h"
#include "runtime/nearest.h"
#include "runtime/text.h"

namespace tessera {
namespace {

constexpr std::string_view kWeight = ".weight";

/// Whether the pattern matches the name or an end of it behind a dot.
bool names_layer(std::string_view pattern, std::string_view layer) {
  return matches_pattern(pattern, layer) || matches_pattern("*." + std::string(pattern), layer);
}

/// Raises Error if a pattern matches none of the layers.
void check_targets(const std::vector<std::string_view>& patterns,
                   const std::vector<Parameter>& weights) {
  std::vector<std::string> names;
  for (const Parameter& weight : weights) {
    const std::string name = layer_name(weight.name());
    names.push_back(name.substr(name.rfind('.') + 1));
    names.push_back(name);
  }
  for (const std::string_view pattern : patterns) {
    const bool found = std::any_of(weights.begin(), weights.end(), [&](const Parameter& weight) {
      return names_layer(pattern, layer_name(weight.name()));
    });
    if (found) continue;
    const auto nearest = nearest_name(pattern, names);
    const std::set<std::string> ends = [&] {
      std::set<std::string> result;
      for (std::size_t i = 0; i < names.size(); i += 2) result.insert(names[i]);
      return result;
    }();
    fail("'{}' matches no linear layer of this model; {}", pattern,
         nearest ? fmt::format("did you mean '{}'?", *nearest)
                 : fmt::format("its layers are {}", fmt::join(ends, ", ")));
  }
}

std::shared_ptr<const Adapter> adapter_of(const Parameter& weight, const AdapterOptions& options) {
  const auto [inputs, outputs] = layer_size(weight);
  const bool stacked = weight.shape().rank() == 3;
  const auto factor = [&](const char* name, std::int64_t rows, std::int64_t columns,
                          Initializer initializer) {
    const Shape shape = stacked ? Shape{weight.shape()[0], rows, columns} : Shape{rows, columns};
    const Parameter parameter(fmt::format("{}.{}.weight", layer_name(weight.name()), name), shape,
                              initializer);
    if (stacked) parameter.set_stacked();
    return parameter;
  };
  const double bound = 1.0 / std::sqrt(static_cast<double>(inputs));
  return std::make_shared<Adapter>(
      Adapter{.a = factor("lora_A", options.rank, inputs, Initializer::uniform(bound)),
              .b = factor("lora_B", outputs, options.rank, Initializer::zeros()),
              .scaling = scaling_factor(options),
              .dropout = stacked ? 0.0f : static_cast<float>(options.dropout)});
}

}  // namespace

double scaling_factor(const AdapterOptions& options) {
  const auto rank = static_cast<double>(options.rank);
  return options.alpha /
         (options.scaling == AdapterScaling::rank_stabilized ? std::sqrt(rank) : rank);
}

std::string layer_name(const std::string& weight) {
  return weight.ends_with(kWeight) ? weight.substr(0, weight.size() - kWeight.size()) : weight;
}

std::vector<Parameter> adaptable_weights(const LanguageModel& model) {
  std::vector<Parameter> weights = parameters_of(model);
  std::erase_if(weights, [](const Parameter& weight) { return !is_adaptable(weight); });
  return weights;
}

void add_adapters(LanguageModel& model, const AdapterOptions& options) {
  if (options.rank == 0) return;
  const std::vector<std::string_view> patterns = split(options.targets, ',');
  check_targets(patterns, adaptable_weights(model));
  for (const Parameter& parameter : parameters_of(model)) parameter.set_trainable(false);
  model.add_adapters([&](const Parameter& weight) -> std::shared_ptr<const Adapter> {
    const bool is_target =
        patterns.empty() ||
        std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
          return names_layer(pattern, layer_name(weight.name()));
        });
    return is_target ? adapter_of(weight, options) : nullptr;
  });
  if (options.base != AdapterBase::nf4) return;
  for (const Parameter& weight : adaptable_weights(model)) weight.set_packed();
}

bool has_adapters(const LanguageModel& model) {
  const std::vector<Parameter> parameters = parameters_of(model);
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const Parameter& parameter) { return parameter.in_adapter(); });
}

}  // namespace tessera
