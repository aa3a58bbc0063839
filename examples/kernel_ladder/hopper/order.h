// The order in which thread blocks take the tiles of c.
#pragma once

#include "examples/kernel_ladder/hopper/tiles.h"

namespace tessera::kernel_ladder::hopper {

/// The tiles in bands of 2,048 rows, and column by column within a band: those that are computed together read few
/// rows of a and few columns of b.
struct TileOrder {
  const Problem& p;
  int rows = kRows;  // of a piece of work: a tile, or the tiles of a cluster

  __device__ unsigned count() const { return down() * across(); }
  __device__ Place place(unsigned number) const {
    const unsigned most = kBandRows / static_cast<unsigned>(rows);
    const unsigned band = number / (most * across()), rest = number % (most * across());
    const unsigned height = min(most, down() - band * most);
    return {static_cast<int>(band * most + rest % height) * rows,
            static_cast<int>(rest / height) * kColumns};
  }

 private:
  static constexpr unsigned kBandRows = 2048;
  __device__ static unsigned parts(std::int64_t extent, int part) {
    return (static_cast<unsigned>(extent) + part - 1) / static_cast<unsigned>(part);
  }
  __device__ unsigned down() const { return parts(p.M, rows); }
  __device__ unsigned across() const { return parts(p.N, kColumns); }
};

}  // namespace tessera::kernel_ladder::hopper
