// The sums of an emulated NCCL and their order.
#pragma once

#include <vector>

#include <nccl.h>

namespace tessera::emulation {

std::size_t size_of(ncclDataType_t type);

/// to[i] = reduction over element i of the copies. As in a ring, ranks are added one after the other,
/// each part of the result begins with another rank, and every partial sum is rounded to the type.
void write_sum(void* to, const std::vector<std::byte*>& copies, std::size_t count,
               ncclDataType_t type, ncclRedOp_t operation);

}  // namespace tessera::emulation
