// Module: a part of a model, holding Parameters and computing with them.
#pragma once

#include <functional>
#include <vector>

#include "autograd/parameter.h"

namespace tessera {

class Module {
 public:
  virtual ~Module() = default;
  /// Calls visit(parameter) for each parameter, in the order of use; a tied one may come twice.
  virtual void visit_parameters(const std::function<void(const Parameter&)>& visit) const = 0;
};

/// Every parameter of the module once, in order of first use; then the factors A of adapters, and then B. So
/// the factors A of layers with one input are neighbours (joined_parameters.h).
std::vector<Parameter> parameters_of(const Module& module);

}  // namespace tessera
