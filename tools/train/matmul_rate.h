// The yardsticks of a training step: how fast this machine multiplies matrices, and how fast its
// GPUs' data sheets say it could.
#pragma once

#include <optional>
#include <vector>

#include "models/language_model.h"
#include "runtime/device.h"

namespace tessera {

/// FLOP/s of plain matrix products on the current context's device: the sum of their operations
/// over the sum of their times. On the CPU OpenBLAS's SGEMM, with its own threading on `threads`
/// threads, whatever the dtype; on a GPU cuBLASLt's, of operands and results in `dtype`, by the
/// GPU's clock. Each distinct shape is timed `repeats` times after a warm-up and the fastest
/// counts.
double matmul_rate(const std::vector<MatmulShape>& shapes, DType dtype, int threads,
                   int repeats = 3);

/// How many GPUs of this machine `ranks` ranks on it have, of which the first has `first`: they are
/// dealt out in turn. 0 on the CPU.
int gpus_of(const Device& first, int ranks);

/// FLOP/s of matrix products in `dtype` that the data sheets promise of these GPUs together
/// (runtime/cuda/device.h). Nothing if one is not known, or there is none.
std::optional<double> peak_matmul_rate(const Device& first, int ranks, DType dtype);

}  // namespace tessera
