// Ranks on several GPUs: which rank has which GPU, and sums of tensors on several GPUs.
#pragma once

#include "kernels/tree_reduce/op.h"
#include "sharding/comm/call.h"

namespace tessera {

/// The device of a machine's rank number `rank`, where `first` is that of number 0. GPUs are
/// assigned in turn, and after the last one the first one follows again.
Device device_of_rank(const Device& first, int rank);

/// Most bytes of the buffer for copies of other GPUs' tensors: charged to `workspace` for as long
/// as the call runs.
inline constexpr std::int64_t kPeerStagingBytes = 32 << 20;

/// tree_reduce on the current stream, where sources may lie on other devices than `result`. These
/// are copied first, piece by piece, beginning at the source after number `own`. Links between GPUs
/// are much slower than their memory, so the copies cost little, and no kernel needs to read
/// another GPU's memory. `staging_bytes` is for tests.
void reduce_from_devices(Out result, std::span<const Tensor> sources, Reduction reduction, int own,
                         std::int64_t staging_bytes = kPeerStagingBytes);

}  // namespace tessera
