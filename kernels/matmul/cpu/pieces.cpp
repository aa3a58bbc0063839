#include "kernels/matmul/cpu/pieces.h"

#include <algorithm>
#include <bit>

#include "kernels/matmul/cpu/rounds.h"

namespace tessera::cpu {
namespace {

/// f(first, depth) for the pieces of a range: those of matmul for its depths alone.
template <typename F>
void for_each_piece(const Engine& engine, const DepthRange& range, const F& f) {
  const std::int64_t depth = depth_of_piece(engine, range.count);
  for (std::int64_t k = 0; k < range.count; k += depth) {
    f(range.first + k, std::min(depth, range.count - k));
  }
}

}  // namespace

std::vector<Piece> pieces_of(const Engine& engine, std::span<const DepthPart> parts) {
  std::vector<Piece> pieces;
  std::int64_t packed = 0;
  int sums = 0;  // that wait
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const std::size_t begin = pieces.size();
    for (const DepthRange& range : parts[p]) {
      for_each_piece(engine, range, [&](std::int64_t first, std::int64_t depth) {
        pieces.push_back({.first = first,
                          .packed = packed,
                          .depth = depth,
                          .sum = sums,
                          .adds = pieces.size() > begin});
        packed += round_up(depth, engine.depth_step);
      });
    }
    Piece& last = pieces.back();
    last.merges = std::countr_one(p);
    if (last.merges > 0 && engine.adds_tiles && pieces.size() == begin + 1) {
      last.sum = sums - 1;
      last.adds = true;
      --last.merges;
    } else {
      ++sums;
    }
    sums -= last.merges;
  }
  return pieces;
}

std::int64_t packed_depth(const Engine& engine, std::span<const DepthPart> parts) {
  std::int64_t depth = 0;
  for (const DepthPart& part : parts) {
    for (const DepthRange& range : part) depth += round_up(range.count, engine.depth_step);
  }
  return depth;
}

std::int64_t total_depth(std::span<const DepthPart> parts) {
  std::int64_t depth = 0;
  for (const DepthPart& part : parts) {
    for (const DepthRange& range : part) depth += range.count;
  }
  return depth;
}

}  // namespace tessera::cpu
