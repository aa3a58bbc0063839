#include "tools/replay/state_log.h"

#include <map>

#include "runtime/context.h"

namespace tessera {
namespace {

/// The unit of each parameter, by name.
std::map<std::string, std::string> units_of(TrainingSession& session) {
  std::map<std::string, std::string> units;
  for (const auto& unit : session.model().units()) {
    for (const Parameter& parameter : unit->parameters()) units[parameter.name()] = unit->name();
  }
  return units;
}

/// Without the padding behind them.
Tensor own_elements(const Shard& shard, const Tensor& values) {
  return values.reshape({values.numel()}).slice(0, shard.count());
}

}  // namespace

std::vector<StateTensor> state_before_step(TrainingSession& session) {
  context().compute_stream().synchronize();
  const auto units = units_of(session);
  std::vector<StateTensor> state;
  for (const Shard& shard : session.strategy().shards()) {
    const std::string& name = shard.parameter.name();
    if (shard.count() == 0) continue;
    state.push_back({name, units.at(name), own_elements(shard, shard.data)});
  }
  for (const auto& [name, tensor] : session.optimizer().state()) {
    const std::string parameter = name.substr(0, name.rfind('.'));
    if (tensor.numel() > 0) state.push_back({name, units.at(parameter), tensor});
  }
  return state;
}

std::vector<StateTensor> gradients_of(TrainingSession& session) {
  context().compute_stream().synchronize();
  const auto units = units_of(session);
  std::vector<StateTensor> gradients;
  for (const Shard& shard : session.strategy().shards()) {
    if (!shard.gradient.defined() || shard.count() == 0) continue;
    const std::string& name = shard.parameter.name();
    gradients.push_back({name, units.at(name), own_elements(shard, shard.gradient)});
  }
  return gradients;
}

}  // namespace tessera
