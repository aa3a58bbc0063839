// The attributes of the rank's device that kernels need, asked once per rank.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::gpu {

/// Does the device have Hopper's own instructions (architecture 9.0), and this build code for them?
bool has_hopper();
/// Does the device have tensor cores for 8-bit floating-point numbers? They came with architecture 8.9.
bool has_fp8();
/// Does cuBLASLt take scales of blocks of them? It is for architecture 9.0.
bool has_fp8_blocks();
/// Can a launch begin before the one ahead of it has ended? It can since architecture 9.0.
bool has_early_launches();
/// Does the device compute in f64 at half the rate of f32, as sm_80, sm_90 and sm_100 do? The others have
/// 1/64 of it ("CUDA C++ Programming Guide", "Arithmetic Instructions").
bool has_fast_f64();
/// Bytes of shared memory that one block may use: 99 KiB on sm_86 and sm_89, 163 KiB on sm_80,
/// 227 KiB on sm_90.
std::size_t shared_memory_limit();
int multiprocessors();
std::int64_t l2_cache_bytes();

}  // namespace tessera::gpu
