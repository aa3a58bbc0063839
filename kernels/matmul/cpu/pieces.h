// The pieces of a sum that is formed in parts.
//
// kernels/matmul/parts.h says which bits the sum has.
// A block keeps the sums of its rows in the cache, one behind the other like the digits of a binary
// counter: sum i waits for its right-hand neighbour in the tree. Eight parts:
//
//   part      0    1    2    3    4    5    6    7
//   sum 0     0    01   01   03   03   03   03   07
//   sum 1               2         4    45   45
//   sum 2                                   6
//
// A part of an odd number, if it is one piece, is added to its neighbour's sum as it is stored, where
// the engine's `accumulate` rounds as an addition does. Other sums are added in a pass of their own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/matmul/cpu/engine.h"
#include "kernels/matmul/parts.h"

namespace tessera::cpu {

/// Depths that the micro-kernel takes at a time, and where their sums go.
struct Piece {
  std::int64_t first = 0;   // depth of the factors
  std::int64_t packed = 0;  // the same in a line of a panel
  std::int64_t depth = 0;
  int sum = 0;
  bool adds = false;  // to the sum; else it begins the sum
  int merges = 0;     // afterwards, so many times, the last sum is added to the one before it
};

/// In order.
std::vector<Piece> pieces_of(const Engine& engine, std::span<const DepthPart> parts);

/// The depth of a packed line that holds all pieces.
std::int64_t packed_depth(const Engine& engine, std::span<const DepthPart> parts);

/// The depths of all parts.
std::int64_t total_depth(std::span<const DepthPart> parts);

}  // namespace tessera::cpu
