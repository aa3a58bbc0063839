// Ranks on several GPUs: who has which, and sums of what lies on several.
#pragma once

#include "kernels/tree_reduce/op.h"
#include "sharding/comm/call.h"

namespace tessera {

/// The device of the rank-th rank on a machine, where `first` is that of rank 0: GPUs are dealt out
/// in turn, and then from the beginning again.
Device device_of_rank(const Device& first, int rank);

/// Where copies of what other GPUs hold are put, at most: charged to `workspace` for as long as the
/// call runs.
inline constexpr std::int64_t kPeerStagingBytes = 32 << 20;

/// tree_reduce on the current stream, where sources may lie on other devices than `result`. These
/// are copied first, piece by piece: links between GPUs are so much slower than their memory that
/// the copies cost next to nothing, and no GPU need be able to read another's memory in a kernel.
/// `staging_bytes` is for tests.
void reduce_from_devices(Out result, std::span<const Tensor> sources, Reduction reduction,
                         std::int64_t staging_bytes = kPeerStagingBytes);

}  // namespace tessera
