#include "runtime/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "runtime/allocator_piece.h"
#include "runtime/block_history.h"
#include "runtime/check.h"
#include "runtime/graph_pool.h"
#include "runtime/out_of_memory.h"
#include "runtime/poison.h"

namespace tessera {
namespace {

// 64 bytes is a cache line and the widest vector register; 512 keeps tiny requests from crowding
// into one line shared by two threads.
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kGranule = 512;
constexpr std::size_t kMostBytes = std::min<std::uint64_t>(INT64_MAX, SIZE_MAX / 8 * 7);
// Kernels walk through large matrices by columns, where every row lies in pages of its own. With
// pages of 4 KB the CPU's table of pages would have too few entries.
constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// The bytes to reserve where at most `peak` are in use: gaps between blocks need room, too.
std::size_t with_spare(std::size_t peak) {
  return peak + peak / 16;
}

class HostMemory final : public HostMemorySource {
 public:
  std::byte* acquire(std::size_t bytes) override {
    if (bytes < kHugePage) {
      return static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes));
    }
    const std::size_t padded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* const data = std::aligned_alloc(kHugePage, padded);
    // Advice: a kernel without huge pages ignores it.
    if (data != nullptr) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
    return static_cast<std::byte*>(data);
  }
  void release(std::byte* data, std::size_t bytes) override {
    unpoison(data, bytes);  // the heap keeps its own marks
    std::free(data);
  }
};

std::string table_of(const MemoryAccount& account) {
  std::vector<std::string> lines;
  for (int i = 0; i < kCategories; ++i) {
    const std::int64_t bytes = account.categories[i].current;
    if (bytes > 0) lines.push_back(fmt::format("{} {}", enum_names<Category>()[i], bytes));
  }
  return lines.empty() ? "none" : fmt::format("{}", fmt::join(lines, "; "));
}

}  // namespace

std::unique_ptr<MemorySource> host_memory() {
  return std::make_unique<HostMemory>();
}

void HostMemorySource::mark_used(std::byte* data, std::size_t bytes, std::size_t block_bytes, int) {
  unpoison_first(data, bytes, block_bytes);
}

void HostMemorySource::mark_unused(std::byte* data, std::size_t block_bytes, int stream) {
  if (is_in_graph_pool(stream)) return;  // every launch reads it
  poison(data, block_bytes);
}

bool Allocator::Smaller::operator()(const Piece* a, const Piece* b) const {
  // A dry run's segments may share addresses.
  return std::tie(a->stream, a->bytes, a->data, a) < std::tie(b->stream, b->bytes, b->data, b);
}
bool Allocator::Smaller::operator()(const Piece* a,
                                    const std::pair<int, std::size_t>& request) const {
  return std::tie(a->stream, a->bytes) < std::tie(request.first, request.second);
}

Allocator::Allocator(Device device, std::unique_ptr<MemorySource> source)
    : device_(device), source_(std::move(source)) {}

Allocator::~Allocator() {
  trim_locked();
}

std::size_t Allocator::block_bytes(std::size_t bytes) {
  return (bytes + kGuardBytes + kGranule - 1) / kGranule * kGranule;
}

Allocator::Block Allocator::allocate(std::size_t bytes, Category category, int stream) {
  if (bytes == 0) return {nullptr, 0, category, stream};
  const std::lock_guard lock(mutex_);
  const int key = key_of(*this, stream);
  // Larger requests would overflow the account.
  Piece* const piece = bytes > kMostBytes ? nullptr : take(block_bytes(bytes), key);
  if (piece == nullptr) fail_out_of_memory(bytes, category);
  source_->mark_used(piece->data, bytes, piece->bytes, key);
  charge(category, static_cast<std::int64_t>(bytes));
  if (GraphPool* const pool = pool_of(*this)) {
    pool->note_allocation({category, static_cast<std::int64_t>(bytes)});
  }
  const Block block = {piece->data, bytes, category, stream, piece};
  note_block(*this, block, /*allocates=*/true);
  return block;
}

/// A block of exactly `bytes` bytes. Null if there is no memory.
Allocator::Piece* Allocator::take(std::size_t bytes, int stream) {
  InUse& in_use = in_use_[stream];
  const InUse before = in_use;
  in_use.now += bytes;
  in_use.peak = std::max(in_use.peak, in_use.now);
  const auto found = free_.lower_bound(std::pair(stream, bytes));
  Piece* const fits = found != free_.end() && (*found)->stream == stream ? *found : nullptr;
  if (fits != nullptr && fits->bytes < 2 * bytes) return cut(fits, bytes);
  if (account_.reserved + bytes <= sum_of_peaks()) {
    if (Piece* const piece = new_segment(bytes, stream)) return piece;
  }
  if (fits != nullptr) return cut(fits, bytes);
  Piece* const piece = take_after_returns(bytes, stream);
  if (piece == nullptr) in_use = before;
  return piece;
}

/// A new segment, after as many free ones as needed have gone back to the source.
Allocator::Piece* Allocator::take_after_returns(std::size_t bytes, int stream) {
  const std::size_t most = with_spare(sum_of_peaks());
  while (account_.reserved + bytes > most) {
    Piece* const segment = segment_to_return(account_.reserved + bytes - most);
    if (segment == nullptr) break;
    return_segment(segment);
  }
  Piece* piece = new_segment(bytes, stream);
  if (piece == nullptr) ++account_.retries;
  while (piece == nullptr) {
    Piece* const segment = segment_to_return(bytes);
    if (segment == nullptr) return nullptr;
    return_segment(segment);
    piece = new_segment(bytes, stream);
  }
  return piece;
}

/// Takes the first bytes of a free piece. The rest becomes a piece of its own.
Allocator::Piece* Allocator::cut(Piece* piece, std::size_t bytes) {
  free_.erase(piece);
  piece->is_free = false;
  if (piece->bytes == bytes) return piece;
  auto* const rest = new Piece{.data = piece->data + bytes,
                               .bytes = piece->bytes - bytes,
                               .stream = piece->stream,
                               .before = piece,
                               .after = piece->after,
                               .is_free = true};
  if (rest->after != nullptr) rest->after->before = rest;
  piece->after = rest;
  piece->bytes = bytes;
  free_.insert(rest);
  return piece;
}

/// Adds the next piece, which is in no list of free ones, to `piece`.
void Allocator::join(Piece* piece, Piece* next) {
  piece->bytes += next->bytes;
  piece->after = next->after;
  if (piece->after != nullptr) piece->after->before = piece;
  delete next;
}

/// Null if the source has too little memory.
Allocator::Piece* Allocator::new_segment(std::size_t bytes, int stream) {
  std::byte* const data = source_->acquire(bytes);
  if (data == nullptr) return nullptr;
  account_.reserved += static_cast<std::int64_t>(bytes);
  account_.reserved_peak = std::max(account_.reserved_peak, account_.reserved);
  ++account_.segments;
  return new Piece{.data = data, .bytes = bytes, .stream = stream};
}

/// The smallest free segment of the `wanted` bytes, or else the largest. Null if none is free.
Allocator::Piece* Allocator::segment_to_return(std::size_t wanted) const {
  Piece* best = nullptr;
  for (Piece* const piece : free_) {
    if (!piece->is_segment() || pool_with(piece->stream) != nullptr) continue;
    const bool serves = piece->bytes >= wanted;
    if (best == nullptr || (best->bytes >= wanted ? serves && piece->bytes < best->bytes
                                                  : piece->bytes > best->bytes)) {
      best = piece;
    }
  }
  return best;
}

void Allocator::return_segment(Piece* piece) {
  free_.erase(piece);
  source_->release(piece->data, piece->bytes);
  account_.reserved -= static_cast<std::int64_t>(piece->bytes);
  delete piece;
}

/// Streams do not share blocks, so each needs its own peak.
std::size_t Allocator::sum_of_peaks() const {
  std::size_t sum = 0;
  for (const auto& [stream, in_use] : in_use_) sum += in_use.peak;
  return sum;
}

void Allocator::fail_out_of_memory(std::size_t bytes, Category category) const {
  throw OutOfMemory(fmt::format("out of memory on {}: {} bytes requested as {}; live bytes: {}",
                                to_string(device_), bytes, name_of(category), table_of(account_)),
                    account_.total.current);
}

void Allocator::release(const Block& block) {
  if (block.data == nullptr) return;
  const std::lock_guard lock(mutex_);
  charge(block.category, -static_cast<std::int64_t>(block.bytes));
  note_block(*this, block, /*allocates=*/false);
  Piece* piece = block.piece;
  note_release(*this, piece->stream, {block.category, -static_cast<std::int64_t>(block.bytes)});
  in_use_[piece->stream].now -= piece->bytes;
  make_free(piece);
}

/// Adds a piece to the free ones, joined with its free neighbours.
void Allocator::make_free(Piece* piece) {
  source_->mark_unused(piece->data, piece->bytes, piece->stream);
  if (Piece* const next = piece->after; next != nullptr && next->is_free) {
    free_.erase(next);
    join(piece, next);
  }
  if (Piece* const previous = piece->before; previous != nullptr && previous->is_free) {
    free_.erase(previous);
    join(previous, piece);
    piece = previous;
  }
  piece->is_free = true;
  free_.insert(piece);
}

void Allocator::charge(Category category, std::int64_t bytes) {
  auto& line = account_.categories[static_cast<int>(category)];
  line.current += bytes;
  line.peak = std::max(line.peak, line.current);
  account_.total.current += bytes;
  if (account_.total.current > account_.total.peak) mark_peak();
  if (recording_) history_.push_back({category, bytes, account_.total.current});
}

void Allocator::mark_peak() {
  account_.total.peak = account_.total.at_peak = account_.total.current;
  for (auto& line : account_.categories) line.at_peak = line.current;
}

MemoryAccount Allocator::account() const {
  const std::lock_guard lock(mutex_);
  return account_;
}

void Allocator::reset_peaks() {
  const std::lock_guard lock(mutex_);
  for (auto& line : account_.categories) line.peak = line.current;
  mark_peak();
}

void Allocator::trim() {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

void Allocator::trim_locked() {
  const std::vector<Piece*> pieces(free_.begin(), free_.end());
  for (Piece* const piece : pieces) {
    if (piece->is_segment() && pool_with(piece->stream) == nullptr) return_segment(piece);
  }
}

void Allocator::record_history(bool on) {
  const std::lock_guard lock(mutex_);
  if (on) history_.clear();
  recording_ = on;
}

std::vector<MemoryEvent> Allocator::history() const {
  const std::lock_guard lock(mutex_);
  return history_;
}

}  // namespace tessera
