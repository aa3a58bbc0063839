#include "autograd/checkpoint.h"

#include <utility>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "runtime/context.h"

namespace tessera {
namespace {

/// Sets the rank's random position for the scope.
class RandomPositionScope {
 public:
  explicit RandomPositionScope(const RandomPosition& position)
      : previous_(std::exchange(context().random(), position)) {}
  ~RandomPositionScope() { context().random() = previous_; }
  RandomPositionScope(const RandomPositionScope&) = delete;
  RandomPositionScope& operator=(const RandomPositionScope&) = delete;

 private:
  RandomPosition previous_;
};

}  // namespace

Variable checkpoint(std::function<Variable(const Variable&)> function, const Variable& input) {
  const TrainableWatch watch;
  Tensor result;
  {
    const NoGradient scope;
    result = function(Variable(input.data())).data();
  }
  // Dropout computes its mask from the position. In backward the context may have moved on to the
  // position of another micro-batch.
  const RandomPosition position = context().random();
  const auto recompute = [function = std::move(function), x = input.data(),
                          wants_dx = input.requires_gradient(), position](Tensor dy) -> Gradients {
    const RandomPositionScope as_in_forward(position);
    const GradientMode recording(true);
    const Variable again = wants_dx ? Variable::leaf(x) : Variable(x);
    const Variable result_again = function(again);
    if (result_again.requires_gradient()) backward(result_again, std::move(dy));
    return {wants_dx ? again.gradient() : Tensor{}};
  };
  return differentiable(result, {input}, /*uses_parameters=*/watch.seen(), recompute);
}

}  // namespace tessera
