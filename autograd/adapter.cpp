#include "autograd/adapter.h"

#include <algorithm>
#include <utility>

#include "runtime/context.h"

namespace tessera {
namespace {

/// Whether this rank's operations belong to training.
struct InTraining {
  bool value = false;
};

}  // namespace

bool is_adapted(const JoinedParameters& weight) {
  return weight.defined() && std::ranges::any_of(weight.parts(), [](const Parameter& part) {
           return part.adapter() != nullptr;
         });
}

bool is_adaptable(const Parameter& weight) {
  const Divided divided = weight.cut().divided;
  return (divided == Divided::outputs || divided == Divided::inputs) && weight.shape().rank() >= 2;
}

LayerSize layer_size(const Parameter& weight) {
  const Cut& cut = weight.cut();
  const int first = weight.shape().rank() - 2, other = 2 * first + 1 - cut.dimension;
  const std::int64_t divided = weight.shape()[cut.dimension], whole = weight.shape()[other];
  return cut.divided == Divided::outputs ? LayerSize{whole, divided} : LayerSize{divided, whole};
}

WeightLayout weight_layout(const Parameter& weight) {
  const bool first = weight.cut().dimension == weight.shape().rank() - 2;
  const bool outputs = weight.cut().divided == Divided::outputs;
  return first == outputs ? WeightLayout::out_in : WeightLayout::in_out;
}

AdapterTraining::AdapterTraining(bool training)
    : previous_(std::exchange(context().state<InTraining>().value, training)) {}

AdapterTraining::~AdapterTraining() {
  context().state<InTraining>().value = previous_;
}

bool AdapterTraining::acts() {
  return context().state<InTraining>().value;
}

}  // namespace tessera
