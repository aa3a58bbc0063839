// What an emulated NCCL adds up, and in which order.
#pragma once

#include <vector>

#include <nccl.h>

namespace tessera::emulation {

std::size_t size_of(ncclDataType_t type);

/// to[i] = reduction over the copies' element i. As a ring would do it: one rank after the other,
/// beginning with another one in each part of the result, rounded to the type every time.
void write_sum(void* to, const std::vector<std::byte*>& copies, std::size_t count,
               ncclDataType_t type, ncclRedOp_t operation);

}  // namespace tessera::emulation
