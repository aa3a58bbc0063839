// The median of measured values.
#pragma once

#include <vector>

namespace tessera {

/// The middle value, the upper one of two. Raises Error if there are no values.
double median(std::vector<double> values);

}  // namespace tessera
