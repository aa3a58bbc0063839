// The attributes of the rank's device that kernels need, asked once per rank.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::gpu {

/// Does the device have Hopper's own instructions (architecture 9.0), and this build code for them?
bool has_hopper();
/// Bytes of shared memory that one block may use: 99 KiB on sm_86 and sm_89, 163 KiB on sm_80,
/// 227 KiB on sm_90.
std::size_t shared_memory_limit();
int multiprocessors();
std::int64_t l2_cache_bytes();

}  // namespace tessera::gpu
