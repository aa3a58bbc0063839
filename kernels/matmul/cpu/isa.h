// The instruction sets that matrix products on the CPU are written for.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/enum_names.h"

namespace tessera {
namespace cpu {

/// Each level of x86-64, from avx2 to amx, has the instructions of those before it. AArch64 has one
/// level, neon. Every CPU has portable and software_tiles.
enum class Isa : std::uint8_t {
  portable,  // std::fma
  // x86-64
  avx2,         // 8 floats, fused multiply-adds
  avx512,       // 16 floats
  avx512_bf16,  // and sums of pairs of bf16 products
  amx,          // and products of bf16 tiles, 16 x 32 by 32 x 16
  // AArch64
  neon,  // 4 floats, fused multiply-adds

  software_tiles,  // the best level, but tiles in software: slow, to test them on any CPU
};

/// The highest level of this CPU. For AMX the first call also asks the kernel for the tiles' state.
Isa best_isa();

/// Does a CPU whose best level is `best` have this one?
bool has_isa(Isa isa, Isa best = best_isa());

/// All levels of this CPU, ascending, and software_tiles.
std::vector<Isa> available_isas();

}  // namespace cpu

template <>
inline constexpr EnumNames<cpu::Isa> kEnumNames<cpu::Isa> = {
    "instruction set",
    {"portable", "avx2", "avx512", "avx512_bf16", "amx", "neon", "software_tiles"}};

}  // namespace tessera
