// Variable: a tensor in the graph of a computation.
//
// A Variable is a handle, like Tensor. It is one of
//   - a constant:        no gradient flows to it;
//   - a leaf:            its gradient is collected in `gradient()`;
//   - a result:          `differentiable` recorded how its gradient flows on to its inputs.
// Parameters are leaves of another kind (autograd/parameter.h): operations take them directly.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/tensor.h"

namespace tessera {

class Node;

/// The place for the sum of a gradient's rows, next to the gradient. A bias needs this sum. The operation
/// that computes the gradient may have it without another pass, and leaves it here: the sum [C], or lines
/// [L, C] of partial sums. If anything else is added to the gradient, the engine empties the place. Null where
/// no sum is wanted.
using GradientTotal = std::shared_ptr<Tensor>;

class Variable {
 public:
  Variable() = default;
  /// A constant.
  explicit Variable(Tensor data);
  /// A leaf: backward collects its gradient.
  static Variable leaf(Tensor data);

  bool defined() const { return state_ != nullptr; }
  const Tensor& data() const;
  const Shape& shape() const { return data().shape(); }
  DType dtype() const { return data().dtype(); }

  /// Does a gradient flow to this variable in backward?
  bool requires_gradient() const;
  /// Is this the last handle on the variable, and the variable the only owner of its tensor? Then
  /// an operation that takes it by value may work in place.
  bool is_last() const;
  /// A leaf's collected gradient; undefined before backward reached it. Raises Error on others.
  const Tensor& gradient() const;

 private:
  friend struct Edge;
  friend Variable differentiable(Tensor, const std::vector<Variable>&, bool,
                                 std::function<std::vector<Tensor>(Tensor)>, GradientTotal);
  friend void backward(const Variable&, Tensor);
  struct State;
  std::shared_ptr<State> state_;
};

/// Gradients of an operation's inputs, in the order of the inputs; undefined where none is needed.
using Gradients = std::vector<Tensor>;

/// From the gradient of the result to those of the inputs. Its captures are the tensors saved for
/// backward. It runs at most once and is destroyed right after. It owns the tensor it is given and
/// may overwrite it if `is_sole_owner` is true.
using BackwardFunction = std::function<Gradients(Tensor dy)>;

/// Makes `result` a variable that depends on `inputs` and, if `uses_parameters`, on trainable
/// Parameters. Where no gradient is wanted (all inputs constant and no parameters, or inside
/// NoGradient), the result is a constant and `backward` is destroyed at once, with its captures.
/// `total` is for the result's gradient.
Variable differentiable(Tensor result, const std::vector<Variable>& inputs, bool uses_parameters,
                        BackwardFunction backward, GradientTotal total = nullptr);

/// That of a variable's gradient.
GradientTotal total_of_gradient(const Variable& variable);

/// From `dy`, the gradient of the result, and `received`, the input's gradient so far from its other
/// uses (undefined without any), to the sum of `received` and the gradient through the result.
using AddingBackward = std::function<Tensor(Tensor dy, Tensor received)>;

/// `differentiable` for one input. `backward` adds up the input's gradients itself. If the input is used
/// again after the result was made, as the residual stream is, this saves a pass over both.
Variable adding_differentiable(Tensor result, const Variable& input, bool uses_parameters,
                               AddingBackward backward, GradientTotal total = nullptr);

/// Is this handle the only one on its storage?
bool is_sole_owner(const Tensor& tensor);

/// Is the graph being recorded on this thread?
bool gradients_enabled();

/// Switches recording off (or back on) for the scope.
class GradientMode {
 public:
  explicit GradientMode(bool enabled);
  ~GradientMode();
  GradientMode(const GradientMode&) = delete;
  GradientMode& operator=(const GradientMode&) = delete;

 private:
  bool previous_;
};

/// `NoGradient scope;` - evaluation and generation.
class NoGradient : public GradientMode {
 public:
  NoGradient() : GradientMode(false) {}
};

}  // namespace tessera
