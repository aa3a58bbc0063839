// The yardstick of a training step: how fast this machine multiplies matrices.
#pragma once

#include <optional>
#include <vector>

#include "models/language_model.h"

namespace tessera {

/// FLOP/s of plain OpenBLAS SGEMM, with OpenBLAS's own threading on `threads` threads, over the
/// given products: the sum of their operations over the sum of their times. Each distinct shape is
/// timed `repeats` times after a warm-up and the fastest counts.
double sgemm_rate(const std::vector<MatmulShape>& shapes, int threads, int repeats = 3);

/// On GPUs: FLOP/s of matrix products in `dtype` that the data sheets promise of all that `ranks`
/// ranks have, which are dealt out in turn (runtime/cuda/device.h). Nothing if one is not known.
std::optional<double> peak_matmul_rate(const Device& first, int ranks, DType dtype);

}  // namespace tessera
