// The check of targets, for operations that end in a cross-entropy.
#pragma once

#include <string_view>

#include "kernels/cross_entropy/op.h"

namespace tessera {

/// Raises Error unless these are targets of so many rows (op.h). Their classes are not checked.
void check_targets(std::string_view op, const Targets& targets, std::int64_t rows);

}  // namespace tessera

namespace tessera::cpu {

/// Raises Error, with the row, unless every target is a class in [0, classes) or ignore_index.
void check_targets(std::string_view op, const Targets& targets, std::int64_t classes,
                   int ignore_index);

}  // namespace tessera::cpu
