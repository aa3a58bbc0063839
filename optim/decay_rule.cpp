#include "optim/decay_rule.h"

namespace tessera {

bool decays(std::string_view parameter_name, const Shape& shape) {
  return shape.rank() >= 2 && !parameter_name.ends_with("bias");
}

}  // namespace tessera
