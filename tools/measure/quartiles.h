// The quartiles of measured values.
#pragma once

#include <vector>

namespace tessera {

struct Quartiles {
  double first = 0.0, median = 0.0, third = 0.0;
};

/// The values a quarter, half and three quarters of the way through the sorted list: the upper one where
/// two are as near. Raises Error if there are no values.
Quartiles quartiles(std::vector<double> values);

}  // namespace tessera
