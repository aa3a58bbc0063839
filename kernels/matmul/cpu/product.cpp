#include "kernels/matmul/cpu/product.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/matmul/cpu/pieces.h"
#include "kernels/matmul/cpu/pipeline.h"
#include "kernels/matmul/cpu/rounds.h"
#include "kernels/matmul/cpu/thread_room.h"
#include "kernels/matmul/openblas.h"
#include "kernels/matmul/options.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera::cpu {
namespace {

/// Products of at most so many rows read b where it lies, if its columns are contiguous.
constexpr std::int64_t kRowsWithoutPanels = 24;

/// Neighbouring panels are packed together: at least so many bytes of a row of the factor.
constexpr std::int64_t kBytesOfTask = 256;

/// c [rows, columns] (+)= sums, rounded once.
template <typename C>
void store_block(C* c, std::int64_t c_row, const compute_t<C>* sums, std::int64_t sums_row,
                 std::int64_t rows, std::int64_t columns, bool accumulate) {
  for (std::int64_t i = 0; i < rows; ++i, c += c_row, sums += sums_row) {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < columns; ++j) {
      store(c[j], accumulate ? load(c[j]) + sums[j] : sums[j]);
    }
  }
}

/// Where the tasks of each slab of a round end if all lie end to end.
struct Ends {
  std::vector<std::int64_t> panels, blocks;
};

/// Runs rounds on the rank's threads.
class Runner {
 public:
  Runner(const Engine& engine, const ProductList& list)
      : engine_(engine),
        list_(list),
        in_bytes_(static_cast<std::int64_t>(size_of(list.in))),
        out_bytes_(static_cast<std::int64_t>(size_of(list.out))),
        sum_bytes_(bytes_of_sum(list)),
        room_(engine, list),
        pieces_(pieces_of(engine, list.parts)),
        scratch_(ThreadRoom::largest(list), context().threads().size()) {}

  void run(const std::vector<Round>& rounds) {
    std::vector<RoundTasks> tasks;
    std::vector<Ends> ends;
    for (const Round& round : rounds) {
      Ends& end = ends.emplace_back();
      RoundTasks& count = tasks.emplace_back();
      for (const Slab& slab : round.slabs) {
        end.panels.push_back(count.panels += tasks_for_a(slab) + tasks_for_b(slab));
        end.blocks.push_back(count.blocks += slab.blocks());
      }
      count.continues = round.continues;
      count.overwrites = round.overwrites;
    }
    const auto visit = [](const std::vector<Slab>& slabs, const std::vector<std::int64_t>& ends,
                          std::int64_t i, const auto& body) {
      const auto index =
          static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), i) - ends.begin());
      body(slabs[index], index == 0 ? i : i - ends[index - 1]);
    };
    run_rounds(
        tasks,
        [&](std::size_t round, std::int64_t i) {
          visit(rounds[round].slabs, ends[round].panels, i,
                [&](const Slab& slab, std::int64_t index) { pack_panels(slab, index); });
        },
        [&](std::size_t round, std::int64_t i) {
          visit(rounds[round].slabs, ends[round].blocks, i,
                [&](const Slab& slab, std::int64_t index) { multiply_block(slab, index); });
        });
  }

 private:
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

  std::int64_t rows_of_task() const { return round_up(kBytesOfTask / in_bytes_, engine_.rows); }
  std::int64_t columns_of_task() const {
    return round_up(kBytesOfTask / in_bytes_, engine_.columns);
  }
  std::int64_t tasks_for_a(const Slab& slab) const {
    return slab.pack_a ? ceil_div(slab.rows, rows_of_task()) : 0;
  }
  std::int64_t tasks_for_section(const Slab& slab) const {
    return ceil_div(slab.columns, columns_of_task());
  }
  std::int64_t tasks_for_b(const Slab& slab) const {
    return slab.pack_b ? list_.sections * tasks_for_section(slab) : 0;
  }

  void pack_panels(const Slab& slab, std::int64_t index) const {
    if (index < tasks_for_b(slab)) {
      const std::int64_t section = index / tasks_for_section(slab);
      const std::int64_t first = index % tasks_for_section(slab) * columns_of_task();
      const std::int64_t count = std::min(columns_of_task(), slab.columns - first);
      // Later rounds of rows may pack the same columns again.
      if (slab.row == 0) {
        step(&ProductSteps::reads_b, slab, column_of(slab, section) + first, count);
      }
      pack_columns(slab, section, first, count);
    } else {
      const std::int64_t first = (index - tasks_for_b(slab)) * rows_of_task();
      const std::int64_t count = std::min(rows_of_task(), slab.rows - first);
      step(&ProductSteps::reads_a, slab, slab.row + first, count);
      pack_rows(slab, first, count);
    }
  }

  /// A step for rows of a, or columns of b, that a slab packs.
  void step(ProductSteps::Step ProductSteps::*which, const Slab& slab, std::int64_t first,
            std::int64_t count) const {
    const ProductSteps* const steps = slab.product->steps;
    if (steps == nullptr || !(steps->*which)) return;
    (steps->*which)({slab.depth_begin, slab.depth, first, count});
  }

  /// The column of c and op(b) where a slab's part of a section begins.
  static std::int64_t column_of(const Slab& slab, std::int64_t section) {
    return section * slab.product->N + slab.column;
  }
  /// The panels for columns of a section from `first` on, a multiple of a panel's.
  char* panels_of_b(const Slab& slab, std::int64_t section, std::int64_t first) const {
    const std::int64_t before = section * round_up(slab.columns, engine_.columns) + first;
    return slab.b + before * line_bytes(engine_, slab.depth);
  }

  void pack_columns(const Slab& slab, std::int64_t section, std::int64_t first,
                    std::int64_t count) const {
    const std::int64_t line = line_bytes(engine_, slab.depth);
    const std::int64_t column = column_of(slab, section) + first;
    for_each_piece(slab, [&](const Piece& piece) {
      char* const to =
          panels_of_b(slab, section, first) + piece.packed * engine_.element_size * engine_.columns;
      engine_.pack_b(to, engine_.columns * line, columns_of_b(*slab.product, column, piece.first),
                     count, piece.depth);
    });
  }

  void pack_rows(const Slab& slab, std::int64_t first, std::int64_t count) const {
    const std::int64_t line = line_bytes(engine_, slab.depth);
    for_each_piece(slab, [&](const Piece& piece) {
      char* const to = slab.a + first * line + piece.packed * engine_.element_size * engine_.rows;
      engine_.pack_a(to, engine_.rows * line,
                     rows_of_a(*slab.product, slab.row + first, piece.first), count, piece.depth);
    });
  }

  /// f(piece) for the pieces of a slab.
  template <typename F>
  void for_each_piece(const Slab& slab, const F& f) const {
    for (const Piece& piece : pieces_) f(piece);
    if (!pieces_.empty()) return;
    const std::int64_t depth = depth_of_piece(engine_, slab.product->K);
    for (std::int64_t k = 0; k < slab.depth; k += depth) {
      f({.first = slab.depth_begin + k,
         .packed = k,
         .depth = std::min(depth, slab.depth - k),
         .adds = k > 0});
    }
  }

  // ---- Blocks

  /// A part of a slab, and the thread's scratch.
  struct Block {
    std::int64_t row, rows, column, columns;
    float* scratch;
  };

  void multiply_block(const Slab& slab, std::int64_t index) {
    const std::int64_t across = ceil_div(slab.columns, slab.block.columns);
    const typename ScratchPool<float>::Piece scratch(scratch_);
    Block block{};
    block.row = index / across * slab.block.rows;
    block.column = index % across * slab.block.columns;
    block.rows = std::min(slab.block.rows, slab.rows - block.row);
    block.columns = std::min(slab.block.columns, slab.columns - block.column);
    block.scratch = scratch.data();
    slab.few_rows ? multiply_few_rows(slab, block) : multiply_panels(slab, block);
    if (engine_.end) engine_.end();
  }

  /// A block with panels of its own, of as much depth as a round has.
  void multiply_few_rows(const Slab& slab, const Block& block) const {
    const Product& p = *slab.product;
    Slab part = slab;
    part.column = block.column;
    part.columns = block.columns;
    if (packs_a(engine_, list_, p)) part.a = reinterpret_cast<char*>(block.scratch);
    part.b = reinterpret_cast<char*>(block.scratch + room_.panels_a);
    // Too few rows use a panel to copy columns that lie side by side.
    const bool reads_b = engine_.reads_b && !list_.transpose_b && block.rows <= kRowsWithoutPanels;
    if (reads_b) part.columns_read = block.columns / engine_.columns * engine_.columns;
    Block whole = block;
    whole.column = 0;
    const std::int64_t most = depth_of_round(engine_, list_, p.K);
    for (; part.depth_begin < p.K; part.depth_begin += most) {
      part.depth = std::min(most, p.K - part.depth_begin);
      if (part.a != nullptr) pack_rows(part, 0, part.rows);
      for_each_section([&](std::int64_t section) {
        for (std::int64_t j = part.columns_read; j < part.columns; j += columns_of_task()) {
          pack_columns(part, section, j, std::min(columns_of_task(), part.columns - j));
        }
      });
      multiply_panels(part, whole);
    }
  }

  /// f(section) for all sections.
  template <typename F>
  void for_each_section(const F& f) const {
    for (std::int64_t section = 0; section < list_.sections; ++section) f(section);
  }

  /// Rows of a and of c stay in the first-level cache while b's panels pass by.
  void multiply_panels(const Slab& slab, const Block& block) const {
    const Product& p = *slab.product;
    const bool ends = slab.depth_begin + slab.depth >= p.K;
    for (std::int64_t i = 0; i < block.rows; i += engine_.rows) {
      const std::int64_t rows = std::min<std::int64_t>(engine_.rows, block.rows - i);
      const std::int64_t row = slab.row + block.row + i, column = slab.column + block.column;
      char* const c = static_cast<char*>(p.c) + (row * p.c_row + column) * out_bytes_;
      const Sums in_c = {c, p.c_row, p.N};
      if (list_.narrows() || (list_.accumulate && !pieces_.empty())) {
        const Sums sums = sums_in_scratch(block, 0);
        multiply_rows(slab, block, i, sums, false);
        store_sums(in_c, sums, rows, block.columns);
      } else {
        multiply_rows(slab, block, i, in_c, list_.accumulate || slab.depth_begin > 0);
      }
      if (ends && p.steps != nullptr && p.steps->finished) {
        p.steps->finished({row, rows, column, block.columns});
      }
    }
  }

  /// Sums of some rows: from one row to the next, and from one section to the next, in elements.
  struct Sums {
    char* data;
    std::int64_t row, section;
  };

  /// Sum number `index` of a block (pieces.h).
  Sums sums_in_scratch(const Block& block, int index) const {
    char* const first = reinterpret_cast<char*>(block.scratch + room_.panels_a + room_.panels_b);
    return {first + index * engine_.rows * room_.sums_row * sum_bytes_, room_.sums_row,
            room_.sums_row / list_.sections};
  }

  /// Some rows of a block, from row `i` on, into `sums`, or added to what these have.
  void multiply_rows(const Slab& slab, const Block& block, std::int64_t i, const Sums& sums,
                     bool accumulate) const {
    const std::int64_t rows = std::min<std::int64_t>(engine_.rows, block.rows - i);
    const auto place = [&](int sum) { return sum == 0 ? sums : sums_in_scratch(block, sum); };
    for_each_piece(slab, [&](const Piece& piece) {
      multiply_piece(slab, block, i, piece, place(piece.sum),
                     {.rows = rows, .depth = piece.depth, .accumulate = accumulate || piece.adds});
      for (int merge = 0; merge < piece.merges; ++merge) {
        const int last = piece.sum - merge;
        add_sums(place(last - 1), place(last), rows, block.columns);
      }
    });
  }

  /// All tiles of a piece. `tile` has their rows and depth.
  void multiply_piece(const Slab& slab, const Block& block, std::int64_t i, const Piece& piece,
                      const Sums& sums, Tile tile) const {
    const Product& p = *slab.product;
    const std::int64_t line = line_bytes(engine_, slab.depth);
    const std::int64_t before = piece.packed * engine_.element_size;
    tile.c_row = sums.row;
    if (slab.a != nullptr) {
      tile.a = slab.a + (block.row + i) * line + before * engine_.rows;
      tile.a_depth = engine_.rows;
    } else {
      tile.a = rows_of_a(p, slab.row + block.row + i, piece.first).data;
      tile.a_row = p.a_row;
    }
    for_each_section([&](std::int64_t section) {
      const char* const panels =
          panels_of_b(slab, section, block.column) + before * engine_.columns;
      for (std::int64_t j = 0; j < block.columns; j += engine_.columns) {
        const std::int64_t column = block.column + j;
        tile.c = sums.data + (section * sums.section + j) * sum_bytes_;
        tile.columns = std::min<std::int64_t>(engine_.columns, block.columns - j);
        if (column < slab.columns_read) {
          const Factor factor = columns_of_b(p, column_of(slab, section) + column, piece.first);
          tile.b = factor.data;
          tile.b_stride = factor.stride;
        } else {
          tile.b = panels + j * line;
          tile.b_stride = engine_.columns;
        }
        engine_.multiply(tile);
      }
    });
  }

  /// c (+)= sums, rounded once if c is narrower.
  void store_sums(const Sums& c, const Sums& sums, std::int64_t rows, std::int64_t columns) const {
    store_sums(list_.out, out_bytes_, c, sums, rows, columns, list_.accumulate);
  }
  /// sums += more.
  void add_sums(const Sums& sums, const Sums& more, std::int64_t rows, std::int64_t columns) const {
    store_sums(statistics_dtype(list_.in), sum_bytes_, sums, more, rows, columns, true);
  }
  void store_sums(DType dtype, std::int64_t bytes, const Sums& to, const Sums& sums,
                  std::int64_t rows, std::int64_t columns, bool accumulate) const {
    visit_floating(dtype, [&](auto type) {
      using C = decltype(type);
      for_each_section([&](std::int64_t section) {
        const auto store_rows = [&](std::int64_t begin, std::int64_t end) {
          auto* const c = reinterpret_cast<C*>(to.data + section * to.section * bytes);
          const auto* const from =
              reinterpret_cast<const compute_t<C>*>(sums.data) + section * sums.section;
          store_block(c + begin * to.row, to.row, from + begin * sums.row, sums.row, end - begin,
                      columns, accumulate);
        };
        run_loop(isa_of_loops_, store_rows, 0, rows);
      });
    });
  }

  const Engine& engine_;
  const ProductList& list_;
  const std::int64_t in_bytes_, out_bytes_, sum_bytes_;
  const Isa isa_of_loops_ = loop_isa();
  const ThreadRoom room_;
  const std::vector<Piece> pieces_;  // of a sum in parts
  ScratchPool<float> scratch_;
};

bool by_openblas() {
  return matmul_options().library == MatmulLibrary::openblas;
}

/// Visits the factors of a product that no round packs.
void visit_unpacked(const Product& p, bool packs_a, bool packs_b) {
  if (p.steps == nullptr) return;
  if (!packs_a) visit_columns(p.steps->reads_a, p.K, p.M);
  if (!packs_b) visit_columns(p.steps->reads_b, p.K, p.steps->sections * p.N);
}

void multiply_with_openblas(std::span<const Product> products, const ProductList& list) {
  for (const Product& p : products) visit_unpacked(p, false, false);
  multiply_by_openblas(products, list);
  for (const Product& p : products) {
    if (p.steps != nullptr) visit_rows(p.steps->finished, p.M, p.N);
  }
}

}  // namespace

bool widens_factors(DType in) {
  return by_openblas() && size_of(in) == 2;
}

bool rounds_apart(DType out, std::int64_t K) {
  return size_of(out) == 2 && (by_openblas() || K > kMostRoundedDepth);
}

void multiply_all(std::span<const Product> products, const ProductList& list) {
  by_openblas() ? multiply_with_openblas(products, list) : multiply_by_panels(products, list);
}

void multiply_by_panels(std::span<const Product> products, const ProductList& list) {
  check(!list.narrows() || list.K <= kMostRoundedDepth,
        "matmul: a sum of {} products is too deep to be stored in 16 bits at once", list.K);
  const Engine& engine = engine_for(matmul_options().isa, list.in);
  const CategoryScope scope(Category::workspace);
  Runner runner(engine, list);
  const Rounds rounds(engine, list, products);
  if (context().is_dry()) return;
  for (const Product& product : products) {
    const bool has_panels = product.M > kFewRows;
    visit_unpacked(product, has_panels && packs_a(engine, list, product), has_panels);
  }
  runner.run(rounds.rounds());
}

void multiply_in_parts(Product product, ProductList list) {
  product.K = packed_depth(engine_for(matmul_options().isa, list.in), list.parts);
  list.K = 0;
  for (const Engine* engine : engines_of_all_levels(list.in)) {
    list.K = std::max(list.K, packed_depth(*engine, list.parts));
  }
  multiply_by_panels({&product, 1}, list);
}

}  // namespace tessera::cpu
