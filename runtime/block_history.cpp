#include "runtime/block_history.h"

#include <atomic>
#include <map>
#include <mutex>

#include "runtime/open_spans.h"

namespace tessera {
namespace {

struct Recording {
  bool on = false;
  std::vector<BlockEvent> events;
};

/// All ranks of the process record here: an allocator that is not recorded holds nothing for it.
struct Recordings {
  std::mutex mutex;
  std::map<const Allocator*, Recording> all;
  std::atomic<int> on = 0;
};

Recordings& recordings() {
  static Recordings recordings;
  return recordings;
}

}  // namespace

void record_blocks(const Allocator& allocator, bool on) {
  Recordings& here = recordings();
  const std::lock_guard lock(here.mutex);
  Recording& one = here.all[&allocator];
  if (on) one.events.clear();
  here.on += static_cast<int>(on) - static_cast<int>(one.on);
  one.on = on;
}

std::vector<BlockEvent> take_blocks(const Allocator& allocator) {
  record_blocks(allocator, false);
  Recordings& here = recordings();
  const std::lock_guard lock(here.mutex);
  std::vector<BlockEvent> events = std::move(here.all[&allocator].events);
  here.all.erase(&allocator);
  return events;
}

void note_block(const Allocator& allocator, const Allocator::Block& block, bool allocates) {
  Recordings& here = recordings();
  if (here.on.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(here.mutex);
  const auto found = here.all.find(&allocator);
  if (found == here.all.end() || !found->second.on) return;
  BlockEvent event = {.allocates = allocates,
                      .address = reinterpret_cast<std::uintptr_t>(block.data),
                      .bytes = static_cast<std::int64_t>(block.bytes),
                      .category = block.category,
                      .stream = block.stream,
                      .time = std::chrono::steady_clock::now()};
  if (allocates) {
    for (const std::string_view name : open_spans()) event.spans.emplace_back(name);
  }
  found->second.events.push_back(std::move(event));
}

}  // namespace tessera
