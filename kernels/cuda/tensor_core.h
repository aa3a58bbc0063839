// Tensor-core instructions of a warp (sm_80 and later) and asynchronous copies.
//
// They are PTX under nvcc. Under the host compiler the emulator follows the documented layouts of
// fragments.
#pragma once

#include <type_traits>

#include "kernels/cuda/language.h"
#include "runtime/half.h"

namespace tessera::gpu {

#if defined(__CUDACC__)

__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// c (16x8) += a (16x16, row-major) * b (16x8, column-major); a and b of bfloat16 or float16.
template <typename T>
__device__ inline void multiply_accumulate(float (&c)[4], const unsigned (&a)[4],
                                           const unsigned (&b)[2]) {
  static_assert(std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>);
  if constexpr (std::is_same_v<T, bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

template <bool transposed>
__device__ inline void load_matrices(unsigned (&r)[4], const void* row) {
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Copies the first `bytes` (0 to 16) of 16 bytes and fills the others with zero.
__device__ inline void copy_async(void* shared, const void* global, unsigned bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}
__device__ inline void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int still_in_flight>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(still_in_flight) : "memory");
}

#else

using Site = std::source_location;

template <typename T>
void multiply_accumulate(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                         const Site& site = Site::current()) {
  emulation::multiply_accumulate<T>(c, a, b, site);
}

template <bool transposed>
void load_matrices(unsigned (&r)[4], const void* row, const Site& site = Site::current()) {
  emulation::load_matrices<transposed>(r, row, site);
}

inline void copy_async(void* shared, const void* global, unsigned bytes,
                       const Site& site = Site::current()) {
  emulation::copy_async(shared, global, bytes, site);
}
inline void copy_async_commit() {
  emulation::commit_copies();
}
template <int still_in_flight>
void copy_async_wait() {
  emulation::copy_async_wait(still_in_flight);
}

#endif

}  // namespace tessera::gpu
