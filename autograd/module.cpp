#include "autograd/module.h"

#include <algorithm>

#include "autograd/adapter.h"

namespace tessera {

std::vector<Parameter> parameters_of(const Module& module) {
  std::vector<Parameter> parameters;
  module.visit_parameters([&](const Parameter& parameter) {
    const auto found = std::find(parameters.begin(), parameters.end(), parameter);
    if (found == parameters.end()) parameters.push_back(parameter);
  });
  const std::vector<Parameter> own = parameters;
  for (const Parameter Adapter::*const factor : {&Adapter::a, &Adapter::b}) {
    for (const Parameter& parameter : own) {
      if (parameter.adapter() != nullptr) parameters.push_back(*parameter.adapter().*factor);
    }
  }
  return parameters;
}

}  // namespace tessera
