// The two tables of NF4 and the places of a row's parts (op.h).
#pragma once

#include <array>
#include <cstdint>

#include "runtime/integer.h"

namespace tessera {

/// Elements of a block.
inline constexpr std::int64_t kNf4Block = 64;
/// Blocks of a group: their scales have one range.
inline constexpr std::int64_t kNf4Group = 256;

/// The values of a 4-bit code (Dettmers et al. 2023, appendix E).
inline constexpr std::array<float, 16> kNf4Values = {-1.0f,
                                                     -0.6961928009986877f,
                                                     -0.5250730514526367f,
                                                     -0.39491748809814453f,
                                                     -0.28444138169288635f,
                                                     -0.18477343022823334f,
                                                     -0.09105003625154495f,
                                                     0.0f,
                                                     0.07958029955625534f,
                                                     0.16093020141124725f,
                                                     0.24611230194568634f,
                                                     0.33791524171829224f,
                                                     0.44070982933044434f,
                                                     0.5626170039176941f,
                                                     0.7229568362236023f,
                                                     1.0f};

/// The values of a scale's 8-bit code, ascending. Decade i, below 10^(i - 6), has 2^i values of each sign:
/// the middles of equal parts of [0.1, 1] (Dettmers et al. 2022, section 1.3). They have the bits of
/// bitsandbytes, which computes them in f32.
constexpr std::array<float, 256> nf4_scale_values() {
  constexpr std::array decades = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  std::array<float, 256> values{};
  std::size_t zero = 127, place = 0;
  for (std::size_t i = 0; i < decades.size(); ++i) {
    const int parts = 1 << i;
    const float step = (1.0f - 0.1f) / static_cast<float>(parts);
    // Each bound is rounded once, counted from the nearer end.
    const auto bound = [&](int k) {
      return static_cast<float>(2 * k <= parts ? double{0.1f} + double{step} * k
                                               : 1.0 - double{step} * (parts - k));
    };
    for (int k = 0; k < parts; ++k) {
      const float value = decades[i] * ((bound(k) + bound(k + 1)) / 2.0f);
      ++place;
      values[zero + place] = value;
      values[zero - place] = -value;
    }
  }
  values[255] = 1.0f;
  return values;
}
inline constexpr std::array<float, 256> kNf4ScaleValues = nf4_scale_values();

/// Where the parts of a row lie, in bytes from its beginning.
struct Nf4Row {
  constexpr explicit Nf4Row(std::int64_t columns)
      : columns(columns),
        blocks(ceil_div(columns, kNf4Block)),
        scales(blocks * kNf4Block / 2),
        mean(round_up(scales + blocks, 4)),
        ranges(mean + 4),
        bytes(round_up(ranges + 4 * ((blocks + kNf4Group - 2) / kNf4Group + 1), 16)) {}

  /// The group of a block of row `row`, counted from that of the row's first block.
  constexpr std::int64_t group_of(std::int64_t row, std::int64_t block) const {
    return (row * blocks % kNf4Group + block) / kNf4Group;
  }

  std::int64_t columns, blocks;
  /// The codes of elements come first.
  std::int64_t scales, mean, ranges, bytes;
};

}  // namespace tessera
