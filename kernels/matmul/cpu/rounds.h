// Rounds: the parts of products that are multiplied at a time, and the blocks that they are cut into.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/matmul/cpu/engine.h"
#include "kernels/matmul/cpu/product.h"
#include "runtime/integer.h"

namespace tessera::cpu {

/// Products of at most so many rows do without shared panels.
inline constexpr std::int64_t kFewRows = 192;

/// The depth of all pieces of a sum but the last, which may be shorter. It depends on K alone.
std::int64_t depth_of_piece(const Engine& engine, std::int64_t K);

/// The sides of a block of c: multiples of a tile's.
struct BlockSize {
  std::int64_t rows = 0, columns = 0;
};

/// No block is larger.
BlockSize largest_block(const Engine& engine);

/// Rows, columns and depths of a product that one round computes.
struct Slab {
  const Product* product = nullptr;
  std::int64_t row = 0, rows = 0, column = 0, columns = 0, depth_begin = 0, depth = 0;
  BlockSize block;
  // The panels in the room, or null. Without panels of b it is a product of few rows.
  char* a = nullptr;
  char* b = nullptr;
  bool pack_a = false, pack_b = false;  // or a round before has left the panels

  std::int64_t blocks() const {
    return ceil_div(rows, block.rows) * ceil_div(columns, block.columns);
  }
};

/// Bytes for the panels of a round.
struct Room {
  std::int64_t a = 0, b = 0;

  /// `most_of_b`: for b's panels. A deep sum may need more.
  Room(const Engine& engine, const ProductList& list, std::int64_t most_of_b);
  std::int64_t bytes() const { return a + b; }
};

/// Does a product read a from panels?
inline bool packs_a(const Engine& engine, const ProductList& list) {
  return list.transpose_a || !engine.reads_a;
}

/// Cuts products into rounds, in order.
class Rounds {
 public:
  using Run = std::function<void(const std::vector<Slab>& round)>;

  /// `run` is called for every round. The room is taken from the workspace. Its bytes are the same on
  /// every machine; a machine uses what suits its level and its caches.
  Rounds(const Engine& engine, const ProductList& list, Run run);

  /// Adds a product; it must live until flush() has returned.
  void add(const Product& product);
  void flush();

 private:
  void add_few_rows(const Product& product);
  void add_large(const Product& product);
  BlockSize block_size(std::int64_t rows, std::int64_t columns, std::int64_t depth) const;
  std::int64_t depth_of_round(std::int64_t K) const;

  const Engine& engine_;
  const ProductList& list_;
  const bool packs_a_;
  const std::int64_t threads_;
  const Room size_;
  const Tensor room_;
  const Run run_;
  std::vector<Slab> round_;
  std::int64_t used_ = 0;    // bytes of the room
  std::int64_t blocks_ = 0;  // of the round
};

}  // namespace tessera::cpu
