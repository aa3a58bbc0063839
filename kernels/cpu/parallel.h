// Parallel loops of CPU kernels, compiled for several instruction sets.
//
// On x86-64 a loop's body is compiled three times: for every CPU, for AVX2 and for AVX-512. The
// rank's instruction set picks one (matmul/options.h). On AArch64 every CPU has NEON. All have the
// same bits, because every operation is rounded on its own (-ffp-contract=off; a fused multiply-add
// is written as one), and because sums do not depend on the width of vectors (lanes.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/matmul/options.h"
#include "runtime/threads.h"

namespace tessera::cpu {

#if defined(__x86_64__)

// `flatten` inlines the functions that a body calls, to compile them for the instruction set too.
#define TESSERA_COMPILED_FOR(instructions) \
  [[gnu::flatten, gnu::noinline, gnu::target(instructions)]]

#if defined(__clang__)
#define TESSERA_WIDE_VECTORS
#else
#define TESSERA_WIDE_VECTORS ",prefer-vector-width=512"
#endif

template <typename Body>
TESSERA_COMPILED_FOR("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq" TESSERA_WIDE_VECTORS)
void run_avx512(const Body& body, std::int64_t begin, std::int64_t end) {
  body(begin, end);
}

template <typename Body>
TESSERA_COMPILED_FOR("avx2,fma,f16c")
void run_avx2(const Body& body, std::int64_t begin, std::int64_t end) {
  body(begin, end);
}

#undef TESSERA_WIDE_VECTORS
#undef TESSERA_COMPILED_FOR

/// body(begin, end) on the calling thread, compiled for this instruction set.
template <typename Body>
void run_loop(Isa isa, const Body& body, std::int64_t begin, std::int64_t end) {
  if (isa < Isa::avx2) return body(begin, end);
  isa < Isa::avx512 ? run_avx2(body, begin, end) : run_avx512(body, begin, end);
}

#else

template <typename Body>
void run_loop(Isa, const Body& body, std::int64_t begin, std::int64_t end) {
  body(begin, end);
}

#endif

/// The instruction set for the loops of the calling thread's rank.
inline Isa loop_isa() {
  return std::min(matmul_options().isa, best_isa());
}

/// body() on the calling thread, compiled for the rank's instruction set.
template <typename Body>
void run(const Body& body) {
  run_loop(
      loop_isa(), [&](std::int64_t, std::int64_t) { body(); }, 0, 0);
}

/// tessera::parallel_for with the body for the rank's instruction set.
template <typename Body>
void parallel_for(std::int64_t total, std::int64_t chunk, const Body& body) {
  const Isa isa = loop_isa();
  tessera::parallel_for(
      total, chunk, [&](std::int64_t begin, std::int64_t end) { run_loop(isa, body, begin, end); });
}

}  // namespace tessera::cpu
