// The allocator in 200 steps of a model: the requests of a dry run, replayed.
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "runtime/block_history.h"
#include "runtime/context.h"
#include "runtime/random.h"
#include "sharding/comm/dry/dry.h"
#include "tools/config/kernel_options.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

/// A device with so many bytes. Nothing reads or writes them.
class FakeDevice final : public MemorySource {
 public:
  explicit FakeDevice(std::size_t bytes) : left_(bytes) {}
  std::byte* acquire(std::size_t bytes) override {
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    return reinterpret_cast<std::byte*>(next_ += std::uintptr_t{1} << 40);
  }
  void release(std::byte*, std::size_t bytes) override { left_ += bytes; }
  void mark_used(std::byte*, std::size_t, std::size_t, int) override {}
  void mark_unused(std::byte*, std::size_t, int) override {}

 private:
  std::size_t left_;
  std::uintptr_t next_ = 0;
};

/// The requests of a run: until the end of its first step, and in the second.
struct Requests {
  std::vector<BlockEvent> start;
  std::vector<BlockEvent> step;
  std::int64_t peak = 0;  // of a step, as `tessera plan` predicts it
};

Requests requests_of(const std::string& preset, std::int64_t rows, std::int64_t length) {
  Config config;
  config.model.preset = preset;
  config.data = {.batch_size = rows, .sequence_length = length, .accumulation_steps = 1};
  const ResolvedConfig run = resolve(config);
  RankContext rank({.threads = 1, .dry = true});
  const ContextGuard guard(rank);
  choose_kernels(run.config);
  const auto world = make_dry_communicator(0, {0});
  const Shape shape{rows, length};
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * length));
  const BatchSource batches = {
      [&](std::int64_t, std::int64_t, std::int64_t) {
        return Batch{Tensor::from(ids, shape), Tensor::from(ids, shape)};
      },
      [&](std::int64_t, std::int64_t, std::int64_t) { return rows * length; }};
  Requests requests;
  record_blocks(rank.allocator(), true);
  TrainingSession session(run, *world);
  session.step(1, batches);
  requests.start = take_blocks(rank.allocator());
  record_blocks(rank.allocator(), true);
  rank.allocator().reset_peaks();
  session.step(2, batches);
  requests.step = take_blocks(rank.allocator());
  requests.peak = rank.allocator().account().total.peak;
  return requests;
}

/// Carries out requests in another allocator.
class Replay {
 public:
  explicit Replay(std::size_t device_bytes)
      : allocator_({}, std::make_unique<FakeDevice>(device_bytes)) {}
  ~Replay() {
    for (const auto& [address, block] : live_) allocator_.release(block);
  }

  void start(const Requests& requests) { play(requests.start); }
  void step(const Requests& requests) {
    const std::set<std::uint64_t> added = play(requests.step);
    for (const std::uint64_t address : added) release(address);  // the next step is another run's
  }
  MemoryAccount account() const { return allocator_.account(); }

 private:
  /// Returns the blocks that stay.
  std::set<std::uint64_t> play(const std::vector<BlockEvent>& events) {
    std::set<std::uint64_t> added;
    for (const BlockEvent& event : events) {
      if (event.allocates) {
        release(event.address);
        live_[event.address] = allocator_.allocate(static_cast<std::size_t>(event.bytes),
                                                   event.category, event.stream);
        added.insert(event.address);
      } else if (added.erase(event.address) > 0) {
        release(event.address);
      }
    }
    return added;
  }
  void release(std::uint64_t address) {
    const auto found = live_.find(address);
    if (found == live_.end()) return;
    allocator_.release(found->second);
    live_.erase(found);
  }

  Allocator allocator_;
  std::map<std::uint64_t, Allocator::Block> live_;
};

}  // namespace

TEST_CASE("memory: 200 equal steps fit into 1.1 of the predicted peak, and settle") {
  for (const auto& [preset, rows, length] :
       {std::tuple{"gpt2", 4, 1024}, {"gpt2", 1, 64}, {"llama3.2-1b", 1, 2048}}) {
    INFO(preset << ", " << rows << " x " << length);
    const Requests requests = requests_of(preset, rows, length);
    Replay replay(static_cast<std::size_t>(requests.peak) / 10 * 11);
    replay.start(requests);
    for (int i = 0; i < 10; ++i) replay.step(requests);
    const std::int64_t segments = replay.account().segments;
    for (int i = 0; i < 190; ++i) replay.step(requests);
    CHECK(replay.account().segments == segments);
  }
}

TEST_CASE("memory: 200 steps of many shapes reserve at most 1.1 of their peak") {
  std::vector<Requests> lengths;
  for (const std::int64_t length : {128, 200, 333, 512, 700, 1000}) {
    lengths.push_back(requests_of("gpt2", 4, length));
  }
  Replay replay(std::size_t{1} << 50);
  replay.start(lengths.front());
  const RandomStream random(3, "lengths");
  for (std::uint64_t i = 0; i < 200; ++i) replay.step(lengths[random.below(i, lengths.size())]);
  const MemoryAccount account = replay.account();
  INFO(account.segments << " segments");
  CHECK(account.reserved_peak <= account.total.peak / 10 * 11);
  CHECK(account.segments < 1000);  // a step has about 1700 requests
}

}  // namespace tessera
