#include "models/language_model.h"

#include <algorithm>
#include <vector>

#include "kernels/cross_entropy/op.h"

namespace tessera {

std::int64_t valid_targets(const Tensor& targets) {
  const std::vector<std::int32_t> ids = targets.to_vector<std::int32_t>();
  return std::count_if(ids.begin(), ids.end(),
                       [](std::int32_t target) { return target != kIgnoreIndex; });
}

}  // namespace tessera
