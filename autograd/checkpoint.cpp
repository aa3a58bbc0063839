#include "autograd/checkpoint.h"

#include "autograd/engine.h"
#include "autograd/node.h"

namespace tessera {

Variable checkpoint(std::function<Variable(const Variable&)> function, const Variable& input) {
  const TrainableWatch watch;
  Tensor result;
  {
    const NoGradient scope;
    result = function(Variable(input.data())).data();
  }
  const auto recompute = [function = std::move(function), x = input.data(),
                          wants_dx = input.requires_gradient()](Tensor dy) -> Gradients {
    const GradientMode recording(true);
    const Variable again = wants_dx ? Variable::leaf(x) : Variable(x);
    const Variable result_again = function(again);
    if (result_again.requires_gradient()) backward(result_again, std::move(dy));
    return {wants_dx ? again.gradient() : Tensor{}};
  };
  return differentiable(result, {input}, /*uses_parameters=*/watch.seen(), recompute);
}

}  // namespace tessera
