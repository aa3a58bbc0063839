#include "autograd/variable.h"

#include <algorithm>
#include <utility>

#include "autograd/node.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

thread_local bool gradients_enabled_ = true;
thread_local bool trainable_seen_ = false;

}  // namespace

Variable::Variable(Tensor data) : state_(std::make_shared<State>()) {
  state_->data = std::move(data);
}

Variable Variable::leaf(Tensor data) {
  check(is_floating(data.dtype()), "a gradient needs a floating tensor, not {}", describe(data));
  Variable variable(std::move(data));
  variable.state_->producer.leaf_gradient = std::make_shared<Tensor>();
  return variable;
}

const Tensor& Variable::data() const {
  check(defined(), "an undefined Variable was used");
  return state_->data;
}

bool Variable::requires_gradient() const {
  return defined() && static_cast<bool>(state_->producer);
}

bool Variable::is_last() const {
  return state_.use_count() == 1 && is_sole_owner(state_->data);
}

const Tensor& Variable::gradient() const {
  check(defined() && state_->producer.leaf_gradient != nullptr,
        "gradient() is kept for leaves only: make the variable with Variable::leaf");
  return *state_->producer.leaf_gradient;
}

Variable differentiable(Tensor result, const std::vector<Variable>& inputs, bool uses_parameters,
                        BackwardFunction backward, GradientTotal total) {
  Variable variable(std::move(result));
  trainable_seen_ |= uses_parameters;
  const bool any_input = std::any_of(inputs.begin(), inputs.end(),
                                     [](const Variable& v) { return v.requires_gradient(); });
  if (!gradients_enabled() || !(any_input || uses_parameters)) return variable;
  std::vector<Edge> edges;
  edges.reserve(inputs.size());
  for (const Variable& input : inputs) edges.push_back(Edge::to(input));
  variable.state_->producer.node =
      std::make_shared<Node>(std::move(edges), std::move(backward), std::move(total));
  return variable;
}

GradientTotal total_of_gradient(const Variable& variable) {
  const Edge edge = Edge::to(variable);
  return edge.node == nullptr ? nullptr : edge.node->total();
}

Variable adding_differentiable(Tensor result, const Variable& input, bool uses_parameters,
                               AddingBackward backward, GradientTotal total) {
  return differentiable(
      std::move(result), {input}, uses_parameters,
      [edge = Edge::to(input), backward = std::move(backward)](Tensor dy) -> Gradients {
        return {backward(std::move(dy), edge.take())};
      },
      std::move(total));
}

bool is_sole_owner(const Tensor& tensor) {
  return tensor.storage().use_count() == 1;
}

bool gradients_enabled() {
  return gradients_enabled_;
}

TrainableWatch::TrainableWatch() : previous_(std::exchange(trainable_seen_, false)) {}

TrainableWatch::~TrainableWatch() {
  trainable_seen_ |= previous_;
}

bool TrainableWatch::seen() const {
  return trainable_seen_;
}

GradientMode::GradientMode(bool enabled) : previous_(gradients_enabled_) {
  gradients_enabled_ = enabled;
}

GradientMode::~GradientMode() {
  gradients_enabled_ = previous_;
}

}  // namespace tessera
