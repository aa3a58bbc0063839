// Warp-level tensor-core instructions (sm_80 and later) and asynchronous copies: PTX under nvcc,
// the documented fragment layouts under the host compiler.
#pragma once

#include <type_traits>

#include "kernels/cuda/language.h"
#include "runtime/half.h"

namespace tessera::gpu {

#if defined(__CUDACC__)

__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// c (16x8) += a (16x16, row-major) * b (16x8, column-major); a and b are bfloat16 or float16
template <typename T>
__device__ void multiply_accumulate(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
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

// Copies `bytes` (0..16) of 16 and zero-fills the rest.
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

template <typename T>
float half_of(unsigned pair, int half) {
  T value;
  value.bits = static_cast<std::uint16_t>(half ? pair >> 16 : pair);
  return static_cast<float>(value);
}

template <typename T>
void multiply_accumulate(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                         TESSERA_EMULATION_SITE) {
  struct Operands {
    float* c;
    const unsigned *a, *b;
  } operands{c, a, b};
  emulation::warp_collective<false>(
      ~0u, "mma.sync.m16n8k16", operands,
      [](Operands** lanes) {
        float left[16][16], right[16][8];  // [m][k], [k][n]
        for (int lane = 0; lane < 32; ++lane)
          for (int half = 0; half < 2; ++half) {
            const int group = lane / 4, pair = lane % 4 * 2 + half;
            for (int r = 0; r < 4; ++r)
              left[group + r % 2 * 8][pair + r / 2 * 8] = half_of<T>(lanes[lane]->a[r], half);
            for (int r = 0; r < 2; ++r)
              right[pair + r * 8][group] = half_of<T>(lanes[lane]->b[r], half);
          }
        for (int lane = 0; lane < 32; ++lane)
          for (int r = 0; r < 4; ++r) {
            const int m = lane / 4 + r / 2 * 8, n = lane % 4 * 2 + r % 2;
            float sum = lanes[lane]->c[r];
            for (int k = 0; k < 16; ++k) sum += left[m][k] * right[k][n];
            lanes[lane]->c[r] = sum;
          }
      },
      file, line);
}

template <bool transposed>
void load_matrices(unsigned (&r)[4], const void* row, TESSERA_EMULATION_SITE) {
  using emulation::fail;
  if (reinterpret_cast<std::uintptr_t>(row) % 16)
    fail("ldmatrix row is not 16-byte aligned", file, line);
  if (!emulation::is_shared(row, 16)) fail("ldmatrix row is not in shared memory", file, line);
  struct Operands {
    std::uint16_t row[8];
    unsigned* result;
    unsigned bank_group;
  } operands{{}, r, unsigned(reinterpret_cast<std::uintptr_t>(row) / 16 % 8)};
  for (int column = 0; column < 8;
       ++column)  // every lane reads its own row, where the sanitizers see it
    operands.row[column] = static_cast<const std::uint16_t*>(row)[column];
  emulation::warp_collective<false>(
      ~0u, transposed ? "ldmatrix.trans" : "ldmatrix", operands,
      [](Operands** lanes) {
        for (int matrix = 0; matrix < 4; ++matrix) {
          unsigned groups = 0;
          for (int i = 0; i < 8; ++i) groups |= 1u << lanes[matrix * 8 + i]->bank_group;
          ++emulation::statistics.matrix_loads;
          emulation::statistics.bank_conflicts += 8 - unsigned(__popc(groups));
          for (int lane = 0; lane < 32; ++lane) {
            const int i = lane / 4, j = lane % 4 * 2;
            const unsigned low =
                transposed ? lanes[matrix * 8 + j]->row[i] : lanes[matrix * 8 + i]->row[j];
            const unsigned high =
                transposed ? lanes[matrix * 8 + j + 1]->row[i] : lanes[matrix * 8 + i]->row[j + 1];
            lanes[lane]->result[matrix] = low | high << 16;
          }
        }
      },
      file, line);
}

// Until the wait the destination holds NaNs, and the copy happens only at the wait: a missing wait,
// and an overwrite of a buffer still being read, both show.
inline void copy_async(void* shared, const void* global, unsigned bytes, TESSERA_EMULATION_SITE) {
  using emulation::fail;
  if (reinterpret_cast<std::uintptr_t>(shared) % 16 ||
      reinterpret_cast<std::uintptr_t>(global) % 16)
    fail("cp.async is not 16-byte aligned", file, line);
  if (!emulation::is_shared(shared, 16))
    fail("cp.async destination is not in shared memory", file, line);
  if (bytes > 16) fail("cp.async copies at most 16 bytes", file, line);
  // Not memset: g++ expands it inline where ThreadSanitizer does not see it.
  static_cast<std::uint64_t*>(shared)[0] = static_cast<std::uint64_t*>(shared)[1] =
      ~std::uint64_t{0};
  emulation::IgnoreAccesses ignore;
  emulation::block.current->copies.back().push_back({shared, global, bytes});
}
inline void copy_async_commit() {
  emulation::IgnoreAccesses ignore;
  emulation::block.current->copies.emplace_back();
}
template <int still_in_flight>
void copy_async_wait() {
  std::vector<emulation::Copy> due;
  {
    emulation::IgnoreAccesses ignore;
    auto& groups = emulation::block.current->copies;
    while (int(groups.size()) - 1 > still_in_flight) {
      due.insert(due.end(), groups.front().begin(), groups.front().end());
      groups.erase(groups.begin());
    }
  }
  for (const emulation::Copy& copy : due) {
    for (unsigned byte = 0; byte < 16; ++byte)
      static_cast<unsigned char*>(copy.destination)[byte] =
          byte < copy.bytes ? static_cast<const unsigned char*>(copy.source)[byte] : 0;
  }
}

#endif

}  // namespace tessera::gpu
