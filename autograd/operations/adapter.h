// The additions of adapters to results of linear layers.
#pragma once

#include "autograd/adapter.h"
#include "autograd/variable.h"

namespace tessera {

/// y + the additions of the weights' adapters for their input x: y [..., out] is the result of these weights,
/// side by side. y itself if there are none.
///
/// All factors A are one product, and each B is a product that adds its columns of y. Where all weights of
/// `weight` share an input they also share the mask of dropout, which has the first adapted weight's name.
Variable with_adapters(Variable y, const Variable& x, const JoinedParameters& weight);

}  // namespace tessera
