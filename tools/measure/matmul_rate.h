// The baselines of a training step: the measured rate of plain matrix products, and the peak rate
// of the data sheets.
#pragma once

#include <optional>
#include <vector>

#include "models/language_model.h"
#include "runtime/device.h"
#include "tools/measure/noise.h"

namespace tessera {

/// FLOP/s of plain matrix products on the current context's device: the sum of their operations
/// over the sum of their times. The CPU runs OpenBLAS's SGEMM with its own threading on `threads`
/// threads, for every dtype. A GPU runs cuBLASLt on operands and results in `dtype`, timed by
/// the GPU's clock. Each shape is timed `repeats` times after a warm-up, and the fastest counts.
double matmul_rate(const std::vector<MatmulShape>& shapes, DType dtype, int threads,
                   int repeats = 3);

/// OpenBLAS uses so many threads of its own within the scope, and the calling thread alone outside of it.
class OpenBlasThreads {
 public:
  explicit OpenBlasThreads(int threads);
  ~OpenBlasThreads();
  OpenBlasThreads(const OpenBlasThreads&) = delete;
  OpenBlasThreads& operator=(const OpenBlasThreads&) = delete;
};

/// A product in f32 by OpenBLAS's SGEMM.
void openblas_product(const MatmulOperands& operands, const MatmulShape& shape);

/// The number of this machine's GPUs that `ranks` ranks use. Rank 0 has `first`, the next ranks
/// have the next GPUs, and then the first ones again. 0 on the CPU.
int gpus_of(const Device& first, int ranks);

/// FLOP/s of matrix products in `dtype` that the data sheets promise of these GPUs together
/// (runtime/cuda/device.h). No value on the CPU, or if a GPU is not in the table.
std::optional<double> peak_matmul_rate(const Device& first, int ranks, DType dtype);

/// Waits until OpenBLAS's threads sleep. After a product they spin for up to 2^28 cycles of the time
/// stamp counter (0.10 seconds at 2.6 GHz), and take time from ours.
void wait_for_openblas_threads();

}  // namespace tessera
