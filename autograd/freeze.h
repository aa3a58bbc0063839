// Freezing parameters: training does not change them.
#pragma once

#include <string_view>

#include "autograd/module.h"

namespace tessera {

/// Makes all parameters untrainable that have one of `prefixes`. The prefixes are separated by
/// commas: "transformer.wte,transformer.h.0."; an empty text freezes nothing.
/// ("transformer.h.1." ends in its dot, because "transformer.h.1" begins "transformer.h.10" too.)
/// Raises Error, before any parameter is changed, if no name has a prefix or if nothing would be
/// left to train.
///
/// Freezing changes no bit of the other gradients. The part of the graph below the lowest trainable
/// parameter is not recorded: it keeps no activations and has no backward pass. Call this before a
/// strategy takes over the parameters.
void freeze(const Module& module, std::string_view prefixes);

}  // namespace tessera
