#include "runtime/graph_pool.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "runtime/allocator_piece.h"
#include "runtime/check.h"

namespace tessera {
namespace {

/// The pools of graphs that may still be launched.
struct GraphPools {
  std::mutex mutex;
  int made = 0;
  std::map<int, GraphPool*> living;
};

GraphPools& graph_pools() {
  static GraphPools pools;
  return pools;
}

/// The pools that this thread's blocks belong to, of its device's and its host's allocator.
thread_local std::vector<GraphPool*> filling_;

}  // namespace

GraphPool* pool_of(const Allocator& allocator) {
  const auto found = std::find_if(filling_.begin(), filling_.end(), [&](const GraphPool* pool) {
    return pool->belongs_to(allocator);
  });
  return found == filling_.end() ? nullptr : *found;
}

int key_of(const Allocator& allocator, int stream) {
  const GraphPool* const pool = pool_of(allocator);
  return pool == nullptr ? stream : pool->number() * kStreamsOfPool + stream;
}

GraphPool* pool_with(int stream) {
  if (!is_in_graph_pool(stream)) return nullptr;
  GraphPools& pools = graph_pools();
  const std::lock_guard lock(pools.mutex);
  const auto found = pools.living.find(stream / kStreamsOfPool);
  return found == pools.living.end() ? nullptr : found->second;
}

void note_release(const Allocator& allocator, int stream, const GraphPool::Charge& charge) {
  GraphPool* const filled = pool_of(allocator);
  GraphPool* const owner = pool_with(stream);
  if (owner != nullptr) owner->note_later_release(charge);
  if (filled != nullptr) filled->note_release(charge, owner == filled);
}

void Allocator::Piece::count_again(Allocator& allocator, const GraphPool::Bytes& difference,
                                   const std::vector<GraphPool::Charge>& charges) {
  const std::lock_guard lock(allocator.mutex_);
  MemoryAccount& account = allocator.account_;
  const MemoryAccount before = account;
  for (std::size_t i = 0; i < difference.size(); ++i) {
    account.categories[i].current += difference[i];
    account.total.current += difference[i];
  }
  for (const auto& [category, bytes] : charges) allocator.charge(category, bytes);
  for (std::size_t i = 0; i < difference.size(); ++i) {
    account.categories[i].current = before.categories[i].current;
  }
  account.total.current = before.total.current;
}

GraphPool::GraphPool(std::shared_ptr<Allocator> allocator) : allocator_(std::move(allocator)) {
  check(pool_of(*allocator_) == nullptr, "this thread fills a graph's memory already");
  Allocator::Piece::trim_and_forget(*allocator_);
  GraphPools& pools = graph_pools();
  const std::lock_guard lock(pools.mutex);
  number_ = ++pools.made;
  check(number_ <= INT32_MAX / kStreamsOfPool, "{} graphs have been made, the most there can be",
        number_ - 1);
  pools.living.emplace(number_, this);
  filling_.push_back(this);
}

void GraphPool::stop() {
  std::erase(filling_, this);
}

GraphPool::~GraphPool() {
  stop();
  {
    GraphPools& pools = graph_pools();
    const std::lock_guard lock(pools.mutex);
    pools.living.erase(number_);
  }
  Allocator::Piece::trim_and_forget(*allocator_);
}

void GraphPool::note_allocation(const Charge& charge) {
  charges_.push_back(charge);
  live_[index(charge)] += charge.bytes;
}

void GraphPool::note_release(const Charge& charge, bool of_pool) {
  charges_.push_back(charge);
  if (!of_pool) released_[index(charge)] -= charge.bytes;
}

// Before a step as before this launch: without the blocks that it leaves, with those that it releases.
void GraphPool::count_again() const {
  Bytes difference{};
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] = released_[i] - live_[i];
  Allocator::Piece::count_again(*allocator_, difference, charges_);
}

}  // namespace tessera
