#include "kernels/matmul/cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera::cpu {
namespace {

#if defined(__x86_64__)
/// Bits 22 and 24 of EDX in leaf 7: bf16 products, and the tiles.
bool has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBits = 1u << 22 | 1u << 24;
  return (d & kBits) == kBits;
}

/// Tiles are 8 KB of state per thread. Linux saves it only for processes that have asked.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Isa find_best() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::portable;
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!has_avx512) return Isa::avx2;
  if (!__builtin_cpu_supports("avx512bf16")) return Isa::avx512;
  return has_tiles() && may_use_tiles() ? Isa::amx : Isa::avx512_bf16;
}
#elif defined(__aarch64__)
Isa find_best() {
  return Isa::neon;
}
#else
Isa find_best() {
  return Isa::portable;
}
#endif

}  // namespace

Isa best_isa() {
  static const Isa best = find_best();
  return best;
}

bool has_isa(Isa isa, Isa best) {
  if (isa == Isa::portable || isa == Isa::software_tiles) return true;
  return (isa == Isa::neon) == (best == Isa::neon) && isa <= best;
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (int i = 0; i <= static_cast<int>(Isa::software_tiles); ++i) {
    if (has_isa(static_cast<Isa>(i))) isas.push_back(static_cast<Isa>(i));
  }
  return isas;
}

}  // namespace tessera::cpu
