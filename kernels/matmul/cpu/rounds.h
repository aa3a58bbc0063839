// Rounds: the parts of products that are multiplied at a time, and the blocks that they are cut into.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/matmul/cpu/engine.h"
#include "kernels/matmul/cpu/product.h"
#include "runtime/integer.h"

namespace tessera::cpu {

/// A product of at most so many rows does without shared panels.
inline constexpr std::int64_t kFewRows = 96;

/// Can a product of the list have few rows?
inline bool has_few_rows(const ProductList& list) {
  return list.M <= kFewRows || list.rows < list.count * list.M;
}

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
  // The panels, or null: then a is read where it lies.
  char* a = nullptr;
  char* b = nullptr;
  std::int64_t columns_read = 0;        // so many columns of b are read where they lie too
  bool pack_a = false, pack_b = false;  // or a round before has left the panels
  bool few_rows = false;                // each block has panels of its own

  std::int64_t blocks() const {
    return ceil_div(rows, block.rows) * ceil_div(columns, block.columns);
  }
};

/// Bytes for the panels of a round.
struct Room {
  std::int64_t a = 0, b = 0;

  Room() = default;
  /// `most_of_b`: for b's panels. A deep sum may need more.
  Room(const Engine& engine, const ProductList& list, std::int64_t most_of_b);
  std::int64_t bytes() const { return a + b; }
};

/// Does a product of the list read a from panels?
bool packs_a(const Engine& engine, const ProductList& list, const Product& product);
/// May one do so?
inline bool may_pack_a(const Engine& engine, const ProductList& list) {
  return list.transpose_a || !engine.reads_a || engine.depth_step > 1;
}

/// The deepest part of a sum that a round takes, K at most.
std::int64_t depth_of_round(const Engine& engine, const ProductList& list, std::int64_t K);
/// At least as deep as that of any product of the list.
std::int64_t deepest_round(const Engine& engine, const ProductList& list);

/// Bytes of a row of a, or a column of b, that is packed to this depth.
std::int64_t line_bytes(const Engine& engine, std::int64_t depth);

/// Columns of b that a block of few rows packs at once, at most. They suit this CPU's caches.
std::int64_t most_columns_of_strip(const Engine& engine, const ProductList& list);
/// The same for the largest cache.
std::int64_t most_columns_of_any_strip(const Engine& engine, const ProductList& list);

/// Cuts products into rounds, in order.
class Rounds {
 public:
  using Run = std::function<void(const std::vector<Slab>& round)>;

  /// `run` is called for every round of `products` products. The room is taken from the workspace. Its
  /// bytes are the same on every machine; a machine uses what suits its level and its caches.
  Rounds(const Engine& engine, const ProductList& list, std::int64_t products, Run run);

  /// Adds a product; it must live until flush() has returned.
  void add(const Product& product);
  void flush();

 private:
  void add_few_rows(const Product& product);
  void add_large(const Product& product);
  BlockSize block_size(std::int64_t rows, std::int64_t columns, std::int64_t depth) const;

  const Engine& engine_;
  const ProductList& list_;
  const std::int64_t products_;
  const std::int64_t threads_;
  const Room size_;
  const Tensor room_;
  const Run run_;
  std::vector<Slab> round_;
  Room used_;                // of the room
  std::int64_t blocks_ = 0;  // of the round
};

}  // namespace tessera::cpu
