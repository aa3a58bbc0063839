#include "kernels/matmul/cpu/rounds.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/context.h"

namespace tessera::cpu {
namespace {

/// Panels of a, which pass through the second-level cache.
constexpr std::int64_t kMostBytesOfA = std::int64_t{6} << 20;
/// Panels of b, which stay there: those of a round that is multiplied, and of the next one.
constexpr std::int64_t kMostBytesOfB = std::int64_t{2} << 20;

/// A sum deeper than so many pieces takes several rounds, so that a round has many columns.
constexpr std::int64_t kPiecesOfRound = 4;

/// A block is worth a task of its own from this many multiply-adds on (about 20 microseconds).
constexpr std::int64_t kLeastWork = 2'000'000;
/// Blocks per thread that even out threads of unequal speed.
constexpr std::int64_t kBlocksPerThread = 4;

/// Rows of a are packed for at least so many columns. Panels are multiplied faster than rows that lie
/// apart (by 5 % with AVX-512), and packing an element costs as much as 50 multiply-adds.
constexpr std::int64_t kColumnsWorthPanels = 1536;

constexpr std::int64_t kLargestCache = std::int64_t{4} << 20;

std::int64_t second_level_bytes() {
  static const std::int64_t bytes = [] {
#ifdef _SC_LEVEL2_CACHE_SIZE
    const long found = sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
    const long found = 0;
#endif
    return std::clamp<std::int64_t>(found, std::int64_t{256} << 10, kLargestCache);
  }();
  return bytes;
}

/// Bytes for the panels of both factors.
struct PanelBytes {
  std::int64_t a = 0, b = 0;

  std::int64_t total() const { return a + b; }
};

/// All products of the list have these, in a round as deep as one can be.
PanelBytes bytes_of_all_panels(const Engine& engine, const ProductList& list) {
  const std::int64_t line = line_bytes(engine, deepest_round(engine, list));
  return {.a = may_pack_a(engine, list) ? (list.rows + list.count * (engine.rows - 1)) * line : 0,
          .b = list.count * list.sections * round_up(list.N, engine.columns) * line};
}

/// A level takes these.
PanelBytes bytes_of_room(const Engine& engine, const ProductList& list) {
  if (list.M <= kFewRows) return {};
  const std::int64_t line = line_bytes(engine, deepest_round(engine, list));
  const PanelBytes all = bytes_of_all_panels(engine, list);
  return {.a = std::min(all.a, std::max(kMostBytesOfA, 2 * engine.rows * line)),
          .b = std::min(all.b, std::max(kMostBytesOfB, 2 * list.sections * engine.columns * line))};
}

/// The bytes that are enough at every level and with every cache.
std::int64_t largest_room(const ProductList& list) {
  std::int64_t bytes = 0;
  for (const Engine* engine : engines_of_all_levels(list.in)) {
    bytes = std::max(bytes, bytes_of_room(*engine, list).total());
  }
  return bytes;
}

/// Equal parts of an extent, each at most `most` and a multiple of `step`, which divides `most`.
std::int64_t equal_parts(std::int64_t extent, std::int64_t most, std::int64_t step) {
  return round_up(ceil_div(extent, ceil_div(extent, most)), step);
}

/// The same for any `most` of at least `step`.
std::int64_t fitting_parts(std::int64_t extent, std::int64_t most, std::int64_t step) {
  return equal_parts(extent, most / step * step, step);
}

std::int64_t columns_of_strip(const Engine& engine, const ProductList& list, std::int64_t bytes) {
  const std::int64_t line = list.sections * line_bytes(engine, deepest_round(engine, list));
  return std::clamp<std::int64_t>(bytes / line / engine.columns * engine.columns, engine.columns,
                                  largest_block(engine, list).columns);
}

/// The share of a cache that the strip of a block has.
std::int64_t strip_bytes(std::int64_t cache) {
  return cache / 4;
}

/// Is a packed for the sake of the micro-kernel alone?
bool has_many_columns(const Engine& engine, std::int64_t M, std::int64_t N) {
  return engine.rows >= 8 && engine.depth_step == 1 && M > kFewRows && N >= kColumnsWorthPanels;
}

/// Sums that are rounded, or formed in parts, do not add up in c.
bool takes_all_depths(const ProductList& list) {
  return list.narrows() || !list.parts.empty();
}

/// Do a row's pieces end where the engine's depths do?
bool has_whole_steps(const Engine& engine, const ProductList& list, const Product& product) {
  if (list.parts.empty()) return product.K % engine.depth_step == 0;
  return std::ranges::all_of(list.parts, [&](const DepthPart& part) {
    return std::ranges::all_of(
        part, [&](const DepthRange& range) { return range.count % engine.depth_step == 0; });
  });
}

}  // namespace

bool may_pack_a(const Engine& engine, const ProductList& list) {
  return list.transpose_a || !engine.reads_a || engine.depth_step > 1 ||
         has_many_columns(engine, list.M, list.sections * list.N);
}

bool packs_a(const Engine& engine, const ProductList& list, const Product& product) {
  if (list.transpose_a || !engine.reads_a) return true;
  if (has_many_columns(engine, product.M, list.sections * product.N)) return true;
  // More rows than a set of the first-level cache has lines, all in the same few sets.
  constexpr std::int64_t kLinesOfSet = 8, kBytesBetweenSets = 1024;
  const std::int64_t row_bytes = product.a_row * static_cast<std::int64_t>(size_of(list.in));
  return !has_whole_steps(engine, list, product) ||
         (engine.rows > kLinesOfSet && row_bytes % kBytesBetweenSets == 0);
}

std::int64_t depth_of_round(const Engine& engine, const ProductList& list, std::int64_t K) {
  return takes_all_depths(list) ? K : std::min(K, kPiecesOfRound * depth_of_piece(engine, K));
}

std::int64_t deepest_round(const Engine& engine, const ProductList& list) {
  const std::int64_t K = std::max<std::int64_t>(list.K, 1);
  return takes_all_depths(list) ? K : std::min(K, kPiecesOfRound * engine.most_depth);
}

std::int64_t line_bytes(const Engine& engine, std::int64_t depth) {
  return round_up(depth, engine.depth_step) * engine.element_size;
}

std::int64_t most_columns_of_strip(const Engine& engine, const ProductList& list) {
  return columns_of_strip(engine, list, strip_bytes(second_level_bytes()));
}

std::int64_t most_columns_of_any_strip(const Engine& engine, const ProductList& list) {
  return columns_of_strip(engine, list, strip_bytes(kLargestCache));
}

std::int64_t depth_of_piece(const Engine& engine, std::int64_t K) {
  constexpr std::int64_t kWholeVectors = 32;
  return equal_parts(K, engine.most_depth, kWholeVectors);
}

BlockSize largest_block(const Engine& engine, const ProductList& list) {
  constexpr std::int64_t kSide = 384;
  return {round_up(kSide, engine.rows), round_up(ceil_div(kSide, list.sections), engine.columns)};
}

PanelRoom::PanelRoom(char* memory, std::int64_t bytes, std::int64_t all, std::int64_t most,
                     std::int64_t panel, bool halves)
    : memory_(memory), keeps_all_(bytes >= all) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t half = bytes / 2 / kLine * kLine;
  if (!keeps_all_ && halves && half >= panel) half_ = half;
  most_ = std::min(half_ > 0 ? half_ : bytes, std::max(most, panel));
}

char* PanelRoom::take(std::int64_t bytes) {
  if (used_ == 0 && !keeps_all_) {
    second_ = !second_;
    next_ = second_ ? half_ : 0;
  }
  char* const panels = memory_ + next_;
  next_ += bytes;
  used_ += bytes;
  return panels;
}

Rounds::Rounds(const Engine& engine, const ProductList& list, std::span<const Product> products)
    : engine_(engine),
      list_(list),
      products_(std::ssize(products)),
      threads_(context().threads().size()),
      room_(Tensor::empty({largest_room(list)}, DType::u8)) {
  if (context().is_dry()) return;  // the memory is accounted
  divide_room();
  for (const Product& product : products) add(product);
  flush();
}

void Rounds::divide_room() {
  if (list_.M <= kFewRows) return;
  const std::int64_t line = line_bytes(engine_, deepest_round(engine_, list_));
  PanelBytes all = bytes_of_all_panels(engine_, list_), room = bytes_of_room(engine_, list_);
  for (std::int64_t* bytes : {&all.a, &all.b}) {
    *bytes *= ceil_div(list_.K, deepest_round(engine_, list_));
  }
  if (room.b < all.b && room.a < all.a && all.b <= room.total() / 2) {
    room = {.a = room.total() - all.b, .b = all.b};  // then b is packed once for all rows
  }
  char* const memory = reinterpret_cast<char*>(room_.raw());
  const bool ahead = threads_ > 1;
  b_ = PanelRoom(memory + room.a, room.b, all.b, second_level_bytes() / 2,
                 list_.sections * engine_.columns * line, ahead);
  // Half as many rows pack b twice as often, unless b's panels are kept. So a has no halves then, and
  // threads wait when the rows change.
  a_ = PanelRoom(memory, room.a, all.a, room.a, engine_.rows * line, ahead && b_.keeps_all());
}

BlockSize Rounds::block_size(std::int64_t rows, std::int64_t columns, std::int64_t depth) const {
  const BlockSize largest = largest_block(engine_, list_);
  BlockSize block = {equal_parts(rows, largest.rows, engine_.rows),
                     equal_parts(columns, largest.columns, engine_.columns)};
  for (;;) {
    const std::int64_t blocks =
        blocks_ + ceil_div(rows, block.rows) * ceil_div(columns, block.columns);
    if (threads_ == 1 || blocks >= kBlocksPerThread * threads_ ||
        block.rows * list_.sections * block.columns * depth < 2 * kLeastWork) {
      return block;
    }
    // Rows first: a row of a is read once for each block that it is in.
    const bool cut_rows = block.rows > 8 * engine_.rows || block.columns <= engine_.columns;
    std::int64_t& side = cut_rows ? block.rows : block.columns;
    const std::int64_t step = cut_rows ? engine_.rows : engine_.columns;
    if (side <= step) return block;
    side = fitting_parts(side, ceil_div(side, 2) + step - 1, step);
  }
}

void Rounds::add(const Product& p) {
  if (p.M <= kFewRows) return add_few_rows(p);
  const std::int64_t line = line_bytes(engine_, p.K);
  const bool packs = packs_a(engine_, list_, p);
  const std::int64_t a_bytes = packs ? round_up(p.M, engine_.rows) * line : 0;
  const std::int64_t b_bytes = list_.sections * round_up(p.N, engine_.columns) * line;
  if (p.K > depth_of_round(engine_, list_, p.K) || a_bytes > a_.most() || b_bytes > b_.most())
    return add_large(p);
  if (!a_.has(a_bytes) || !b_.has(b_bytes)) flush();
  add_slab({.product = &p,
            .rows = p.M,
            .columns = p.N,
            .depth = p.K,
            .a = packs ? a_.take(a_bytes) : nullptr,
            .b = b_.take(b_bytes),
            .pack_a = packs,
            .pack_b = true});
}

void Rounds::add_slab(Slab slab) {
  slab.block = block_size(slab.rows, slab.columns, slab.depth);
  blocks_ += slab.blocks();
  round_.slabs.push_back(slab);
}

void Rounds::add_few_rows(const Product& p) {
  // Strips of columns: as many as the threads can use, and the cache wants.
  const std::int64_t strips = ceil_div(kBlocksPerThread * threads_, products_);
  const std::int64_t most = std::min(most_columns_of_strip(engine_, list_),
                                     round_up(ceil_div(p.N, strips), engine_.columns));
  round_.slabs.push_back(
      {.product = &p,
       .rows = p.M,
       .columns = p.N,
       .depth = p.K,
       .block = {round_up(p.M, engine_.rows), equal_parts(p.N, most, engine_.columns)},
       .few_rows = true});
  blocks_ += round_.slabs.back().blocks();
}

void Rounds::add_large(const Product& p) {
  flush();
  const std::int64_t depth = depth_of_round(engine_, list_, p.K);
  const std::int64_t line = line_bytes(engine_, depth);
  const std::int64_t columns =
      fitting_parts(p.N, b_.most() / (list_.sections * line), engine_.columns);
  const bool packs = packs_a(engine_, list_, p);
  const std::int64_t rows = packs ? fitting_parts(p.M, a_.most() / line, engine_.rows) : p.M;
  // b's panels of a depth, which later rows may find again.
  std::vector<char*> panels_of_b(static_cast<std::size_t>(ceil_div(p.N, columns)));
  const bool keeps_b = b_.keeps_all() || panels_of_b.size() == 1;
  for (std::int64_t k = 0; k < p.K; k += depth) {
    for (std::int64_t m = 0; m < p.M; m += rows) {
      char* panels_of_a = nullptr;
      for (std::int64_t n = 0; n < p.N; n += columns) {
        Slab slab = {.product = &p,
                     .row = m,
                     .rows = std::min(rows, p.M - m),
                     .column = n,
                     .columns = std::min(columns, p.N - n),
                     .depth_begin = k,
                     .depth = std::min(depth, p.K - k),
                     .pack_a = packs && n == 0,
                     .pack_b = m == 0 || !keeps_b};
        if (slab.pack_a) panels_of_a = a_.take(round_up(slab.rows, engine_.rows) * line);
        char*& b = panels_of_b[static_cast<std::size_t>(n / columns)];
        if (slab.pack_b) {
          b = b_.take(list_.sections * round_up(slab.columns, engine_.columns) * line);
        }
        slab.a = panels_of_a;
        slab.b = b;
        add_slab(slab);
        round_.continues = k > 0 && rows >= p.M && columns >= p.N;
        flush();
      }
    }
  }
}

void Rounds::flush() {
  round_.overwrites = a_.overwrites() || b_.overwrites();
  if (!round_.slabs.empty()) rounds_.push_back(std::move(round_));
  round_ = {};
  a_.next_round();
  b_.next_round();
  blocks_ = 0;
}

}  // namespace tessera::cpu
