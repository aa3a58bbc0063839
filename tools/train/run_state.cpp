#include "tools/train/run_state.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/cast/op.h"
#include "models/adapters.h"
#include "runtime/check.h"
#include "runtime/host_pieces.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

Tensor window(const Tensor& tensor, const ElementRange& elements) {
  return tensor.reshape({tensor.numel()}).slice(elements.begin, elements.end);
}

/// The parameter of an optimizer's tensor: "h.0.bias" of "h.0.bias.m".
std::string parameter_of(const std::string& state) {
  return state.substr(0, state.rfind('.'));
}

/// A number that need not be finite; JSON has no other.
Json finite_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json routers_json(const Routers& routers) {
  Json biases = Json::array();
  for (const RouterBias& bias : routers.biases()) biases.push_back(bias.values);
  return {{"biases", std::move(biases)},
          {"counts", routers.last_step().counts},
          {"tokens", routers.last_step().tokens}};
}

/// The numbers that every state has. `routers` may be null.
Json state_json(std::int64_t batches, std::int64_t sequences, std::int64_t updates,
                const Routers* routers) {
  Json state = {{"batches", batches}, {"sequences", sequences}, {"updates", updates}};
  if (routers != nullptr) state["routers"] = routers_json(*routers);
  return state;
}

/// Fills `tensor`, which has the elements of the stored tensor that the shard has.
void read_tensor(CheckpointReader& reader, const std::string& name, const Shard& shard,
                 const Tensor& whole) {
  const Shape& shape = shard.parameter.shape();
  const Tensor tensor = whole.reshape({whole.numel()}).slice(0, shard.count());
  const CheckpointTensor& stored = reader.tensor(name);
  check(stored.shape == shape, "{}: tensor {} has shape {}; the model has {}",
        reader.folder().string(), name, to_string(stored.shape), to_string(shape));
  write_from_host(tensor, [&](const Tensor& piece, std::int64_t begin) {
    const auto fill = [&](const Tensor& values) {
      const std::span<std::byte> bytes(values.raw(), values.bytes());
      shard.elements().from(begin).for_each_run(
          values.numel(), [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
            const std::size_t size = size_of(values.dtype());
            reader.read(name, element,
                        bytes.subspan(static_cast<std::size_t>(offset) * size,
                                      static_cast<std::size_t>(count) * size));
          });
    };
    if (stored.dtype == piece.dtype()) return fill(piece);
    const Tensor values = Tensor::empty_on_host(piece.shape(), stored.dtype);  // a frozen parameter
    fill(values);
    cast(piece, values);
  });
}

void read_optimizer(CheckpointReader& reader, TrainingSession& session) {
  std::map<std::string, const Shard*> shards;
  for (const Shard& shard : session.strategy().shards()) shards[shard.parameter.name()] = &shard;
  for (const auto& [name, tensor] : session.optimizer().state()) {
    const Shard& shard = *shards.at(parameter_of(name));
    read_tensor(reader, name, shard, tensor);
  }
}

/// A whole number of the state. Raises Error if it is negative, or of another type.
std::int64_t count_of(const Json& state, const char* name) {
  const Json& value = state.at(name);
  check(value.is_number_integer() && value.get<std::int64_t>() >= 0,
        "the checkpoint's '{}' is not a number from 0 to 2^63 - 1", name);
  return value.get<std::int64_t>();
}

Restored restore_numbers(TrainingSession& session, const CheckpointManifest& manifest) {
  const Json state = Json::parse(manifest.state);
  session.optimizer().set_steps(count_of(state, "updates"));
  if (session.scaler() && state.contains("loss_scale")) {
    session.scaler().emplace(LossScaler::State{.scale = state.at("loss_scale").get<double>(),
                                               .good_steps = count_of(state, "good_steps")});
  }
  // Without a history the first scales are guesses. Scales of blocks need none.
  if (session.fp8() && session.fp8()->has_history() && state.contains("fp8")) {
    session.fp8()->set_history(state.at("fp8").get<std::vector<float>>());
  }
  if (Routers* const routers = session.model().routers()) {
    restore_routers(manifest, *routers);
  }
  return {.position = {.step = manifest.step, .batches = count_of(state, "batches")},
          .sequences = count_of(state, "sequences")};
}

}  // namespace

void read_parameters(CheckpointReader& reader, const LanguageModel& model,
                     const std::vector<Shard>& shards) {
  const bool adapters_only = has_adapters(model);
  for (const Shard& shard : shards) {
    if (adapters_only && !shard.parameter.in_adapter()) continue;
    read_tensor(reader, shard.parameter.name(), shard, shard.data);
  }
}

void read_averages(CheckpointReader& reader, const LanguageModel& model,
                   const std::vector<Shard>& shards) {
  const bool adapters_only = has_adapters(model);
  bool some = false;
  for (const Shard& shard : shards) {
    if (adapters_only && !shard.parameter.in_adapter()) continue;
    const std::string& name = shard.parameter.name();
    const bool averaged = reader.manifest().tensors.contains(name + ".ema");
    some |= averaged;
    read_tensor(reader, averaged ? name + ".ema" : name, shard, shard.data);
  }
  check(some, "{} has no averages of the weights; train with train.ema", reader.folder().string());
}

void restore_routers(const CheckpointManifest& manifest, Routers& routers) {
  const Json state = Json::parse(manifest.state).at("routers");
  const Json& biases = state.at("biases");
  check(biases.size() == routers.biases().size(), "the checkpoint has {} routers, the model {}",
        biases.size(), routers.biases().size());
  for (std::size_t layer = 0; layer < biases.size(); ++layer) {
    if (!biases[layer].empty()) routers.set_bias(layer, biases[layer].get<std::vector<float>>());
  }
  routers.set_last_step({.counts = state.at("counts").get<std::vector<std::int64_t>>(),
                         .tokens = state.at("tokens").get<std::int64_t>()});
}

std::vector<TensorToSave> tensors_to_save(TrainingSession& session) {
  struct Saved {
    const Shard* shard;
    ElementRange elements;
  };
  std::map<std::string, Saved> parameters;
  std::vector<TensorToSave> tensors;
  const auto add = [&](const std::string& name, const Saved& saved, const Tensor& tensor) {
    tensors.push_back({{.name = name,
                        .dtype = tensor.dtype(),
                        .shape = saved.shard->parameter.shape(),
                        .elements = saved.shard->elements().from(saved.elements.begin),
                        .count = saved.elements.count()},
                       window(tensor, saved.elements)});
  };
  const std::vector<Shard>& shards = session.strategy().shards();
  const std::vector<ElementRange> elements = session.strategy().saved_elements();
  const bool adapters_only = has_adapters(session.model());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const Parameter& parameter = shards[i].parameter;
    if (adapters_only && !parameter.in_adapter()) continue;
    const Saved saved = {&shards[i], elements[i]};
    parameters.emplace(parameter.name(), saved);
    add(parameter.name(), saved, shards[i].data);
  }
  for (const auto& [name, tensor] : session.optimizer().state()) {
    add(name, parameters.at(parameter_of(name)), tensor);
  }
  return tensors;
}

std::string run_state_text(TrainingSession& session, const RunPosition& position,
                           const StepResult& last, std::int64_t sequences,
                           const std::string& base) {
  Json state = state_json(position.batches, sequences, session.optimizer().steps(),
                          session.model().routers());
  state["loss"] = finite_or_null(last.loss);
  state["gradient_norm"] = finite_or_null(last.gradient_norm);
  if (!base.empty()) state["base"] = base;
  if (session.scaler()) {
    state["loss_scale"] = session.scaler()->state().scale;
    state["good_steps"] = session.scaler()->state().good_steps;
  }
  if (session.fp8() && session.fp8()->has_history()) {
    state["fp8"] = session.fp8()->history().to_vector<float>();
  }
  return state.dump();
}

std::string new_state_text(std::int64_t updates, std::int64_t sequences, LanguageModel& model) {
  return state_json(/*batches=*/0, sequences, updates, model.routers()).dump();
}

std::string base_fingerprint(const CheckpointManifest& manifest) {
  return Json::parse(manifest.state).value("base", "");
}

Restored restore(TrainingSession& session, const std::filesystem::path& checkpoint) {
  Restored restored;
  // An exception would leave the other ranks in the gathers that follow. So the problem is returned.
  session.strategy().write_masters([&] {
    try {
      CheckpointReader reader(checkpoint);
      read_parameters(reader, session.model(), session.strategy().shards());
      read_optimizer(reader, session);
      restored = restore_numbers(session, reader.manifest());
    } catch (const std::exception& error) {
      restored.problem = error.what();
    }
  });
  return restored;
}

}  // namespace tessera
