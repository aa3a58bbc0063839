// Rounds: the parts of products that are multiplied at a time, and the blocks that they are cut into.
#pragma once

#include <cstdint>
#include <span>
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

/// No block is larger. It has these columns of every section.
BlockSize largest_block(const Engine& engine, const ProductList& list);

/// Rows, columns and depths of a product that one round computes. The columns are those of a section,
/// and the slab has them of every section. b's panels lie section behind section.
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

/// Does a product of the list read a from panels?
bool packs_a(const Engine& engine, const ProductList& list, const Product& product);
/// May one do so?
bool may_pack_a(const Engine& engine, const ProductList& list);

/// The deepest part of a sum that a round takes, K at most.
std::int64_t depth_of_round(const Engine& engine, const ProductList& list, std::int64_t K);
/// At least as deep as that of any product of the list.
std::int64_t deepest_round(const Engine& engine, const ProductList& list);

/// Bytes of a row of a, or a column of b, that is packed to this depth.
std::int64_t line_bytes(const Engine& engine, std::int64_t depth);

/// Columns of a section of b that a block of few rows packs at once, at most. They suit this CPU's
/// caches.
std::int64_t most_columns_of_strip(const Engine& engine, const ProductList& list);
/// The same for the largest cache.
std::int64_t most_columns_of_any_strip(const Engine& engine, const ProductList& list);

/// The slabs that are multiplied at a time.
struct Round {
  std::vector<Slab> slabs;
  bool continues = false;   // adds to the sums of the round before
  bool overwrites = false;  // has panels where the round before has some
};

/// Memory for the panels of one factor.
class PanelRoom {
 public:
  PanelRoom() = default;
  /// `all`: bytes of all panels of all products. A round takes at most `most`, or one panel.
  PanelRoom(char* memory, std::int64_t bytes, std::int64_t all, std::int64_t most,
            std::int64_t panel, bool halves);

  /// Do panels stay until the last round?
  bool keeps_all() const { return keeps_all_; }
  /// Bytes for a round's panels.
  std::int64_t most() const { return most_; }
  bool has(std::int64_t bytes) const { return used_ + bytes <= most_; }
  /// Do this round's panels lie where those of the round before do?
  bool overwrites() const { return used_ > 0 && !keeps_all_ && half_ == 0; }
  char* take(std::int64_t bytes);
  void next_round() { used_ = 0; }

 private:
  char* memory_ = nullptr;
  std::int64_t most_ = 0;
  bool keeps_all_ = true;
  std::int64_t half_ = 0;  // where the second half begins; rounds take turns with both. 0: none
  bool second_ = false;    // half is this round's
  std::int64_t used_ = 0;  // by this round
  std::int64_t next_ = 0;  // where the next panels begin
};

/// Cuts products into rounds. Panels of neighbouring rounds do not share memory, or the later one is
/// marked. With one thread the memory of b's panels, which are in the cache, is used again at once.
class Rounds {
 public:
  /// The room is taken from the workspace. Its bytes are the same on every machine; a machine uses what
  /// suits its level and its caches.
  Rounds(const Engine& engine, const ProductList& list, std::span<const Product> products);

  /// In order. They need this object and its arguments.
  const std::vector<Round>& rounds() const { return rounds_; }

 private:
  void divide_room();
  void add(const Product& product);
  void add_slab(Slab slab);
  void add_few_rows(const Product& product);
  void add_large(const Product& product);
  void flush();
  BlockSize block_size(std::int64_t rows, std::int64_t columns, std::int64_t depth) const;

  const Engine& engine_;
  const ProductList& list_;
  const std::int64_t products_;
  const std::int64_t threads_;
  const Tensor room_;
  PanelRoom a_, b_;
  std::vector<Round> rounds_;
  Round round_;              // is being filled
  std::int64_t blocks_ = 0;  // of the round
};

}  // namespace tessera::cpu
