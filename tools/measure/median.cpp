#include "tools/measure/median.h"

#include <algorithm>
#include <cstddef>

#include "runtime/check.h"

namespace tessera {

double median(std::vector<double> values) {
  check(!values.empty(), "a median needs at least one value");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tessera
