#include "autograd/module.h"

#include <algorithm>

namespace tessera {

std::vector<Parameter> parameters_of(const Module& module) {
  std::vector<Parameter> parameters;
  module.visit_parameters([&](const Parameter& parameter) {
    const auto found = std::find(parameters.begin(), parameters.end(), parameter);
    if (found == parameters.end()) parameters.push_back(parameter);
  });
  return parameters;
}

}  // namespace tessera
