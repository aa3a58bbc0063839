#include "tools/measure/quartiles.h"

#include <algorithm>

#include "runtime/check.h"

namespace tessera {

Quartiles quartiles(std::vector<double> values) {
  check(!values.empty(), "quartiles need at least one value");
  std::sort(values.begin(), values.end());
  const std::size_t count = values.size();
  return {values[count / 4], values[count / 2], values[3 * count / 4]};
}

}  // namespace tessera
