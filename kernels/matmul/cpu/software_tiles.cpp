// A stand-in of AMX's tiles, which runs their packing and micro-kernel on any CPU.
//
// It has the bits of the instructions: fused multiply-adds of bf16 in f32, rounded to nearest, where
// denormal numbers count as zero and become zero (Intel's Software Developer's Manual, TDPBF16PS).
#include <bit>
#include <cmath>

#include "kernels/matmul/cpu/tiles.h"

namespace tessera::cpu {
namespace {

constexpr int kPairs = kTileDepth / 2;

/// The tiles of a thread.
thread_local std::uint32_t registers[8][kTileSide][kTileSide];

float flushed(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : x;
}

/// The even or the odd depth of a pair.
float half_of(std::uint32_t pair, bool odd) {
  return flushed(std::bit_cast<float>(odd ? pair & 0xffff0000u : pair << 16));
}

/// The rows of c that they have.
thread_local std::int64_t rows_set = 0;

struct SoftwareTiles {
  static void set_rows(std::int64_t rows) { rows_set = rows; }
  static void end() { rows_set = 0; }

  template <int kTile>
  static void zero() {
    std::memset(registers[kTile], 0, sizeof(registers[kTile]));
  }
  template <int kTile>
  static void load(const void* from, std::int64_t row_bytes) {
    for (std::int64_t i = 0; i < rows_of_tile(kTile, rows_set); ++i) {
      std::memcpy(registers[kTile][i], static_cast<const char*>(from) + i * row_bytes,
                  sizeof(registers[kTile][i]));
    }
  }
  template <int kTile>
  static void store(void* to, std::int64_t row_bytes) {
    for (std::int64_t i = 0; i < rows_of_tile(kTile, rows_set); ++i) {
      std::memcpy(static_cast<char*>(to) + i * row_bytes, registers[kTile][i],
                  sizeof(registers[kTile][i]));
    }
  }
  template <int kSum, int kA, int kB>
  static void multiply() {
    for (std::int64_t i = 0; i < rows_of_tile(kSum, rows_set); ++i) {
      float chains[2][kTileSide] = {};
      for (int k = 0; k < kPairs; ++k) {
        for (int odd = 0; odd < 2; ++odd) {
          const float factor = half_of(registers[kA][i][k], odd != 0);
          for (int j = 0; j < kTileSide; ++j) {
            const float other = half_of(registers[kB][k][j], odd != 0);
            chains[odd][j] = flushed(std::fma(factor, other, chains[odd][j]));
          }
        }
      }
      for (int j = 0; j < kTileSide; ++j) {
        const float both = flushed(chains[0][j] + chains[1][j]);
        const float before = flushed(std::bit_cast<float>(registers[kSum][i][j]));
        registers[kSum][i][j] = std::bit_cast<std::uint32_t>(flushed(before + both));
      }
    }
  }
};

}  // namespace

const Engine* software_tiles_engine(DType dtype) {
  return dtype == DType::bf16 ? &kTiles<SoftwareTiles> : nullptr;
}

}  // namespace tessera::cpu
