// How one instruction set multiplies: the form of packed panels and the micro-kernel for them.
//
//             b's panels:  columns x depth each
//              +-----+-----+-----+
//              |     |     |     |
//              +-----+-----+-----+
//   a's panels:
//   +------+   +-----+-----+-----+
//   |      |   | tile|     |     |   c, cut into tiles of `rows` x `columns`
//   +------+   +-----+-----+-----+
//   |      |   |     |     |     |
//   +------+   +-----+-----+-----+
//
// The depth is cut into pieces. A panel's part of a piece lies in memory in the order in which the
// micro-kernel reads it, with zeros for rows, columns and depths that the factor lacks.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/matmul/cpu/isa.h"
#include "runtime/dtype.h"

namespace tessera::cpu {

/// A part of a factor. Element (i, k), with i a row of c for a or a column of c for b, lies `stride`
/// i + k elements behind `data` if the depth k is contiguous, else i + `stride` k.
struct Factor {
  const void* data = nullptr;
  std::int64_t stride = 0;
  bool depth_contiguous = false;
};

/// One tile of c and one piece of depth. Sums are f32, or f64 for f64.
struct Tile {
  const void* a = nullptr;  // a panel's piece, or the factor itself
  std::int64_t a_row = 0;   // 0: a panel; else from one row of the factor to the next, in elements
  // In a panel: from one depth to the next, in elements. AMX has its own form of panels.
  std::int64_t a_depth = 0;
  const void* b = nullptr;
  std::int64_t b_stride = 0;  // from one depth to the next, in elements; the panel's columns
  void* c = nullptr;
  std::int64_t c_row = 0;  // from one row to the next, in elements
  std::int64_t rows = 0, columns = 0, depth = 0;
  bool accumulate = false;  // adds the sums to c
  // The sums begin with c's elements, so a product may be cut along the depth without a change of
  // bits. AMX does not do that.
  bool continues = false;
};

struct Engine {
  int rows = 0, columns = 0;  // of a tile
  int depth_step = 1;         // a packed piece has a multiple of this depth
  std::int64_t most_depth = 0;
  int element_size = 0;  // bytes of a packed element
  // May a tile's a be the factor itself, where its depth is contiguous and a multiple of depth_step,
  // and b the factor itself, where its columns are?
  bool reads_a = false, reads_b = false;
  // Is what a tile adds to c (Tile::accumulate) its whole sum, rounded? AMX's chain begins with c.
  bool adds_tiles = false;
  // Pack a piece of neighbouring panels, which begin `panel_bytes` apart. `count` is the number of
  // rows of a, or columns of b.
  using Pack = void(void* to, std::int64_t panel_bytes, const Factor& from, std::int64_t count,
                    std::int64_t depth);
  Pack* pack_a = nullptr;
  Pack* pack_b = nullptr;
  void (*multiply)(const Tile& tile) = nullptr;
  // Called by a thread after its last tile.
  void (*end)() = nullptr;
};

/// The engine for factors of this dtype. The CPU must have the level.
const Engine& engine_for(Isa isa, DType dtype);

/// The engines of all levels for the dtype, also of those that the CPU or the compiler lacks: their
/// sizes may be read. Workspace is taken for the largest, so that a plan's bytes hold on every
/// machine.
std::vector<const Engine*> engines_of_all_levels(DType dtype);

// One function per file, since each file is compiled for other instructions. Null: the level has no
// instructions of its own for the dtype. `multiply` is null where the compiler cannot emit them.
const Engine* portable_engine(DType dtype);
const Engine* avx2_engine(DType dtype);
const Engine* avx512_engine(DType dtype);
const Engine* avx512_bf16_engine(DType dtype);
const Engine* amx_engine(DType dtype);
const Engine* neon_engine(DType dtype);
const Engine* software_tiles_engine(DType dtype);

}  // namespace tessera::cpu
