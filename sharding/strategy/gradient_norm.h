// The global gradient norm, with the same bits under every partition.
//
// Floating-point sums depend on their order, and so on the partition. This sum of squares is exact:
// its words are integers, and the ranks add them in one all-reduce (kernels/gradient_norm/op.h).
// Any order, and any split over ranks and threads, gives the same norm. The ranks add on the device
// of the gradients, so the host waits only when it asks for the value.
#pragma once

#include <vector>

#include "kernels/gradient_norm/op.h"
#include "runtime/tensor.h"
#include "sharding/comm/communicator.h"

namespace tessera {

/// sum_of_squares of this rank's tensors. Some of them, or all, may lie in host memory; then it waits for
/// the compute stream.
void own_sum_of_squares(const GradientNorm& norm, const Tensors& tensors);

/// sqrt(sum of squares) over all gradients (f32, bf16 or f16; empty ones are fine) of all ranks of
/// `group`, which own disjoint parts; null: of this rank alone. NaN if any element is NaN, infinity
/// if any is infinite.
GradientNorm gradient_norm(const std::vector<Tensor>& gradients, Communicator* group = nullptr);

}  // namespace tessera
