#include "kernels/matmul/cpu/product.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/numeric.h"
#include "kernels/cpu/scratch.h"
#include "kernels/matmul/cpu/rounds.h"
#include "kernels/matmul/options.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera::cpu {
namespace {

/// Products of at most so many rows read b where it lies, if its columns are contiguous.
constexpr std::int64_t kRowsWithoutPanels = 24;

/// A packing task takes at least so many rows of a or columns of b.
constexpr std::int64_t kLinesOfTask = 64;

/// c [rows, columns] (+)= sums, rounded once.
template <typename C>
void store_block(C* c, std::int64_t c_row, const float* sums, std::int64_t sums_row,
                 std::int64_t rows, std::int64_t columns, bool accumulate) {
  for (std::int64_t i = 0; i < rows; ++i, c += c_row, sums += sums_row) {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < columns; ++j) {
      store(c[j], accumulate ? load(c[j]) + sums[j] : sums[j]);
    }
  }
}

/// Floats of a thread's panels of a and b and of its sums, each in whole cache lines.
struct ThreadPieces {
  std::int64_t sums_row = 0, panel_a = 0, panel_b = 0, sums = 0;

  ThreadPieces(const Engine& engine, const ProductList& list) {
    const auto rows = [&](std::int64_t most) {
      return round_up(std::min(list.M, most), engine.rows);
    };
    // A row of a, or a column of b, in the deepest piece of a sum.
    const std::int64_t line =
        round_up(std::min(list.K, engine.most_depth), engine.depth_step) * engine.element_size;
    const auto floats = [](std::int64_t bytes) {
      return ScratchCutter<float>::aligned(ceil_div(bytes, 4));
    };
    const BlockSize block = largest_block(engine);
    sums_row = round_up(std::min(list.N, block.columns), engine.columns);
    if (packs_a(engine, list)) panel_a = floats(rows(kFewRows) * line);
    panel_b = floats(engine.columns * line);
    if (list.narrows()) sums = rows(block.rows) * sums_row;
  }
  /// Enough at every level.
  static std::int64_t largest(const ProductList& list) {
    std::int64_t most = 0;
    for (const Engine* engine : engines_of_all_levels(list.in)) {
      const ThreadPieces pieces(*engine, list);
      most = std::max(most, pieces.panel_a + pieces.panel_b + pieces.sums);
    }
    return most;
  }
};

/// Runs rounds on the rank's threads.
class Runner {
 public:
  Runner(const Engine& engine, const ProductList& list)
      : engine_(engine),
        list_(list),
        packs_a_(packs_a(engine, list)),
        in_bytes_(static_cast<std::int64_t>(size_of(list.in))),
        out_bytes_(static_cast<std::int64_t>(size_of(list.out))),
        sum_bytes_(static_cast<std::int64_t>(size_of(statistics_dtype(list.in)))),
        pieces_(engine, list),
        scratch_(ThreadPieces::largest(list), context().threads().size()) {}

  void run(const std::vector<Slab>& round) {
    std::vector<std::int64_t> panels, blocks;  // where each slab's end if all lie end to end
    std::int64_t panel_count = 0, block_count = 0;
    for (const Slab& slab : round) {
      panels.push_back(panel_count += tasks_for_a(slab) + tasks_for_b(slab));
      blocks.push_back(block_count += slab.blocks());
    }
    const auto for_each = [&](const std::vector<std::int64_t>& ends, const auto& body) {
      context().threads().run(ends.back(), [&](std::int64_t i) {
        const auto index =
            static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), i) - ends.begin());
        body(round[index], index == 0 ? i : i - ends[index - 1]);
      });
    };
    for_each(panels, [&](const Slab& slab, std::int64_t i) { pack_panels(slab, i); });
    for_each(blocks, [&](const Slab& slab, std::int64_t i) { multiply_block(slab, i); });
  }

 private:
  std::int64_t packed_line(std::int64_t depth) const {
    return round_up(depth, engine_.depth_step) * engine_.element_size;
  }

  // ---- Factors and panels

  /// Rows of a from `row` on, at depth `k`.
  Factor rows_of_a(const Product& p, std::int64_t row, std::int64_t k) const {
    return factor(p.a, p.a_row, !list_.transpose_a, row, k);
  }
  Factor columns_of_b(const Product& p, std::int64_t column, std::int64_t k) const {
    return factor(p.b, p.b_row, list_.transpose_b, column, k);
  }
  Factor factor(const void* data, std::int64_t stride, bool depth_contiguous, std::int64_t i,
                std::int64_t k) const {
    const std::int64_t offset = depth_contiguous ? i * stride + k : k * stride + i;
    return {static_cast<const char*>(data) + offset * in_bytes_, stride, depth_contiguous};
  }

  // ---- Packing tasks: neighbouring panels, so that whole cache lines of a row are read

  std::int64_t rows_of_task() const { return round_up(kLinesOfTask, engine_.rows); }
  std::int64_t columns_of_task() const { return round_up(kLinesOfTask, engine_.columns); }
  std::int64_t tasks_for_a(const Slab& slab) const {
    return slab.pack_a ? ceil_div(slab.rows, rows_of_task()) : 0;
  }
  std::int64_t tasks_for_b(const Slab& slab) const {
    return slab.pack_b ? ceil_div(slab.columns, columns_of_task()) : 0;
  }

  void pack_panels(const Slab& slab, std::int64_t index) const {
    const bool of_b = index < tasks_for_b(slab);
    const std::int64_t width = of_b ? engine_.columns : engine_.rows;
    const std::int64_t most = of_b ? columns_of_task() : rows_of_task();
    const std::int64_t first = (of_b ? index : index - tasks_for_b(slab)) * most;
    const std::int64_t count = std::min(most, (of_b ? slab.columns : slab.rows) - first);
    const std::int64_t line = packed_line(slab.depth);
    char* const to = (of_b ? slab.b : slab.a) + first * line;
    const Product& p = *slab.product;
    for_each_piece(slab, [&](std::int64_t k, std::int64_t depth) {
      char* const piece = to + k * engine_.element_size * width;
      const std::int64_t at = slab.depth_begin + k;
      const Factor factor =
          of_b ? columns_of_b(p, slab.column + first, at) : rows_of_a(p, slab.row + first, at);
      (of_b ? engine_.pack_b : engine_.pack_a)(piece, width * line, factor, count, depth);
    });
  }

  /// f(k, depth) for the pieces of a slab, k from its first depth on.
  template <typename F>
  void for_each_piece(const Slab& slab, const F& f) const {
    const std::int64_t piece = depth_of_piece(engine_, slab.product->K);
    for (std::int64_t k = 0; k < slab.depth; k += piece) f(k, std::min(piece, slab.depth - k));
  }

  // ---- Blocks

  /// A block of c, or of the thread's sums if these are rounded when they are stored.
  struct Block {
    std::int64_t row, rows, column, columns;  // in the slab
    char* sums;
    std::int64_t sums_row;
    bool accumulate;
  };

  void multiply_block(const Slab& slab, std::int64_t index) {
    const Product& p = *slab.product;
    const std::int64_t across = ceil_div(slab.columns, slab.block.columns);
    Block block{};
    block.row = index / across * slab.block.rows;
    block.column = index % across * slab.block.columns;
    block.rows = std::min(slab.block.rows, slab.rows - block.row);
    block.columns = std::min(slab.block.columns, slab.columns - block.column);
    block.accumulate = !list_.narrows() && (list_.accumulate || slab.depth_begin > 0);
    const std::int64_t first = (slab.row + block.row) * p.c_row + slab.column + block.column;
    char* const c = static_cast<char*>(p.c) + first * out_bytes_;
    const typename ScratchPool<float>::Piece scratch(scratch_);
    block.sums = list_.narrows()
                     ? reinterpret_cast<char*>(scratch.data() + pieces_.panel_a + pieces_.panel_b)
                     : c;
    block.sums_row = list_.narrows() ? pieces_.sums_row : p.c_row;
    if (engine_.begin) engine_.begin();
    if (slab.b == nullptr) {
      multiply_few_rows(slab, block, scratch.data());
    } else {
      multiply_panels(slab, block);
    }
    if (engine_.end) engine_.end();
    if (list_.narrows()) round_sums(block, c, p.c_row);
  }

  /// The tile of a block at row i and column j. The caller adds its factors.
  Tile tile_at(const Block& block, std::int64_t i, std::int64_t j, std::int64_t k,
               std::int64_t depth) const {
    return {.b_stride = engine_.columns,
            .c = block.sums + (i * block.sums_row + j) * sum_bytes_,
            .c_row = block.sums_row,
            .rows = std::min<std::int64_t>(engine_.rows, block.rows - i),
            .columns = std::min<std::int64_t>(engine_.columns, block.columns - j),
            .depth = depth,
            .accumulate = block.accumulate || k > 0};
  }

  /// Rows of a and of c stay in the first-level cache while b's panels pass by.
  void multiply_panels(const Slab& slab, const Block& block) const {
    const Product& p = *slab.product;
    const std::int64_t line = packed_line(slab.depth);
    for (std::int64_t i = 0; i < block.rows; i += engine_.rows) {
      for_each_piece(slab, [&](std::int64_t k, std::int64_t depth) {
        const std::int64_t before = k * engine_.element_size;
        const void* const a =
            packs_a_ ? slab.a + (block.row + i) * line + before * engine_.rows
                     : rows_of_a(p, slab.row + block.row + i, slab.depth_begin + k).data;
        for (std::int64_t j = 0; j < block.columns; j += engine_.columns) {
          Tile tile = tile_at(block, i, j, k, depth);
          tile.a = a;
          tile.a_row = packs_a_ ? 0 : p.a_row;
          tile.b = slab.b + (block.column + j) * line + before * engine_.columns;
          engine_.multiply(tile);
        }
      });
    }
  }

  /// Packs each panel of b just before its tiles.
  void multiply_few_rows(const Slab& slab, const Block& block, float* scratch) const {
    const Product& p = *slab.product;
    char* const a = reinterpret_cast<char*>(scratch);
    char* const b = reinterpret_cast<char*>(scratch + pieces_.panel_a);
    for_each_piece(slab, [&](std::int64_t k, std::int64_t depth) {
      const std::int64_t line = packed_line(depth);
      if (packs_a_) {
        engine_.pack_a(a, engine_.rows * line, rows_of_a(p, 0, k), block.rows, depth);
      }
      for (std::int64_t j = 0; j < block.columns; j += engine_.columns) {
        const std::int64_t columns = std::min<std::int64_t>(engine_.columns, block.columns - j);
        const Factor factor = columns_of_b(p, block.column + j, k);
        // Too few rows use a panel to copy columns that lie side by side.
        const bool reads_b = engine_.reads_b && !factor.depth_contiguous &&
                             columns == engine_.columns && block.rows <= kRowsWithoutPanels;
        if (!reads_b) engine_.pack_b(b, 0, factor, columns, depth);
        for (std::int64_t i = 0; i < block.rows; i += engine_.rows) {
          Tile tile = tile_at(block, i, j, k, depth);
          tile.a = packs_a_ ? a + i * line : rows_of_a(p, i, k).data;
          tile.a_row = packs_a_ ? 0 : p.a_row;
          tile.b = reads_b ? factor.data : b;
          if (reads_b) tile.b_stride = factor.stride;
          engine_.multiply(tile);
        }
      }
    });
  }

  void round_sums(const Block& block, char* c, std::int64_t c_row) const {
    visit_floating(list_.out, [&](auto type) {
      using C = decltype(type);
      if constexpr (sizeof(C) == 2) {
        store_block(reinterpret_cast<C*>(c), c_row, reinterpret_cast<const float*>(block.sums),
                    block.sums_row, block.rows, block.columns, list_.accumulate);
      }
    });
  }

  const Engine& engine_;
  const ProductList& list_;
  const bool packs_a_;
  const std::int64_t in_bytes_, out_bytes_, sum_bytes_;
  const ThreadPieces pieces_;
  ScratchPool<float> scratch_;
};

}  // namespace

void multiply_all(std::span<const Product> products, const ProductList& list) {
  check(!list.narrows() || list.K <= kMostRoundedDepth,
        "matmul: a sum of {} products is too deep to be stored in 16 bits at once", list.K);
  const Engine& engine = engine_for(matmul_options().isa, list.in);
  const CategoryScope scope(Category::workspace);
  Runner runner(engine, list);
  Rounds rounds(engine, list, [&](const std::vector<Slab>& round) { runner.run(round); });
  for (const Product& product : products) rounds.add(product);
  rounds.flush();
}

}  // namespace tessera::cpu
