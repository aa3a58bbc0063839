// The order in which the blocks of a kernel take tiles and heads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/language.h"
#include "runtime/integer.h"

namespace tessera::cuda::attention {

/// The order of blocks. The longest tiles of all heads come first, so that no block is left with a
/// long one at the end. Heads are taken in sections whose keys and values fit the L2 cache together,
/// because every tile of a head reads them again.
///
///   3 tiles, 5 heads, sections of 2:   turn 0 of heads 0, 1;  turn 1 of heads 0, 1;  turn 2 ...;
///                                      turn 0 of heads 2, 3;  ...           turn 0 of head 4; ...
struct Schedule {
  unsigned tiles;    // of each head
  unsigned heads;    // of all batch elements
  unsigned section;  // heads, at least 1

  /// A head's tiles of `rows_per_tile` tokens; each reads up to `bytes_per_head` again.
  Schedule(std::int64_t tokens, int rows_per_tile, std::int64_t all_heads,
           std::int64_t bytes_per_head)
      : tiles(static_cast<unsigned>(ceil_div(tokens, rows_per_tile))),
        heads(static_cast<unsigned>(all_heads)),
        section(1) {
    section = even_section(cache_bytes() / (bytes_per_head + 1));
  }
  /// The same with sections of at most so many heads.
  Schedule with_sections(std::int64_t most) const {
    Schedule result = *this;
    result.section = even_section(most);
    return result;
  }

  __host__ __device__ unsigned count() const { return tiles * heads; }
  dim3 blocks() const { return dim3(count()); }

  struct Place {
    int turn;  // 0 for a head's longest tile
    int head;  // of all batch elements
  };
  __device__ Place place_of(unsigned block) const {
    const unsigned first = block / (tiles * section) * section;
    const unsigned width = min(section, heads - first), rest = block - first * tiles;
    return {static_cast<int>(rest / width), static_cast<int>(first + rest % width)};
  }

 private:
  // Sections of one size, or nearly: a small one at the end would keep few multiprocessors busy.
  unsigned even_section(std::int64_t most) const {
    const std::int64_t all = std::max(heads, 1u);
    const std::int64_t sections = ceil_div(all, std::clamp<std::int64_t>(most, 1, all));
    return static_cast<unsigned>(ceil_div(all, sections));
  }
  // Less than half of the cache. On an A100 or H100 each half serves its own side of the chip.
  static std::int64_t cache_bytes() { return gpu::l2_cache_bytes() * 2 / 5; }
};

}  // namespace tessera::cuda::attention
