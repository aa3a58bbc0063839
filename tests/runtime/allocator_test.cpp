#include "runtime/allocator.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "runtime/error.h"
#include "runtime/poison.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;

/// Host memory with a limit. Counts the bytes that it hands out.
class LimitedMemory final : public HostMemorySource {
 public:
  struct Counts {
    std::size_t live = 0;
    int acquired = 0;
    int released = 0;
  };

  LimitedMemory(std::size_t limit, Counts& counts) : limit_(limit), counts_(counts) {}
  std::byte* acquire(std::size_t bytes) override {
    if (counts_.live + bytes > limit_) return nullptr;
    counts_.live += bytes;
    ++counts_.acquired;
    return memory_->acquire(bytes);
  }
  void release(std::byte* data, std::size_t bytes) override {
    counts_.live -= bytes;
    ++counts_.released;
    memory_->release(data, bytes);
  }

 private:
  std::size_t limit_;
  Counts& counts_;
  std::unique_ptr<MemorySource> memory_ = host_memory();
};

struct Fixture {
  LimitedMemory::Counts counts;
  Allocator allocator;

  explicit Fixture(std::size_t limit = 1 << 30)
      : allocator({}, std::make_unique<LimitedMemory>(limit, counts)) {}
};

constexpr Category kWorkspace = Category::workspace;

}  // namespace

TEST_CASE("a block holds the request in the fewest pieces of 512 bytes") {
  for (std::size_t bytes = 1; bytes < 70000; bytes += bytes < 2000 ? 1 : 97) {
    const std::size_t occupied = Allocator::block_bytes(bytes);
    REQUIRE(occupied % 512 == 0);
    REQUIRE(occupied >= bytes + kGuardBytes);
    REQUIRE(occupied < bytes + kGuardBytes + 512);
  }
}

TEST_CASE("blocks are 64-byte aligned and writable to the end") {
  Allocator allocator({}, host_memory());
  for (const std::size_t bytes : {1, 63, 512, 513, 5000, 1 << 20}) {
    const auto block = allocator.allocate(bytes, kWorkspace, 0);
    REQUIRE(reinterpret_cast<std::uintptr_t>(block.data) % 64 == 0);
    std::memset(block.data, 0xff, bytes);
    allocator.release(block);
  }
}

TEST_CASE("large blocks begin at pages of 2 MB, which the CPU can map as one") {
  Allocator allocator({}, host_memory());
  for (const std::size_t bytes : {2 << 20, 5 << 20}) {
    const auto block = allocator.allocate(bytes, kWorkspace, 0);
    CHECK(reinterpret_cast<std::uintptr_t>(block.data) % (2 << 20) == 0);
    std::memset(block.data, 0xff, bytes);
    allocator.release(block);
  }
}

TEST_CASE("the account counts requested bytes per category, with peaks") {
  Fixture f;
  const auto a = f.allocator.allocate(1000, Category::parameters, 0);
  const auto b = f.allocator.allocate(300, Category::gradients, 0);
  const auto c = f.allocator.allocate(1, Category::parameters, 1);
  MemoryAccount account = f.allocator.account();
  REQUIRE(account[Category::parameters].current == 1001);
  REQUIRE(account[Category::gradients].current == 300);
  REQUIRE(account[Category::optimizer].current == 0);
  REQUIRE(account.total.current == 1301);

  f.allocator.release(a);
  const auto d = f.allocator.allocate(200, Category::gradients, 0);
  account = f.allocator.account();
  REQUIRE(account[Category::parameters].current == 1);
  REQUIRE(account[Category::parameters].peak == 1001);
  REQUIRE(account[Category::gradients].peak == 500);
  REQUIRE(account.total.current == 501);
  REQUIRE(account.total.peak == 1301);  // not 1501: the parameters had been released

  f.allocator.reset_peaks();
  account = f.allocator.account();
  REQUIRE(account[Category::parameters].peak == 1);
  REQUIRE(account.total.peak == 501);
  for (const auto& block : {b, c, d}) f.allocator.release(block);
  REQUIRE(f.allocator.account().total.current == 0);
}

TEST_CASE("at the peak of the total each category has what it had then") {
  Fixture f;
  const auto first = f.allocator.allocate(100, Category::activations, 0);
  f.allocator.release(first);
  const auto second = f.allocator.allocate(40, Category::activations, 0);
  const auto largest = f.allocator.allocate(200, kWorkspace, 0);
  f.allocator.release(second);
  const MemoryAccount account = f.allocator.account();
  CHECK(account.total.peak == 240);
  CHECK(account.total.at_peak == 240);
  CHECK(account[Category::activations].peak == 100);
  CHECK(account[Category::activations].at_peak == 40);
  CHECK(account[kWorkspace].at_peak == 200);
  f.allocator.reset_peaks();
  CHECK(f.allocator.account()[Category::activations].at_peak == 0);
  f.allocator.release(largest);
}

TEST_CASE("a released block serves the next request of its size on its stream") {
  Fixture f;
  const auto first = f.allocator.allocate(1000, kWorkspace, 3);
  f.allocator.release(first);
  const auto second = f.allocator.allocate(900, Category::activations, 3);
  REQUIRE(second.data == first.data);
  REQUIRE(f.counts.acquired == 1);
  const auto third = f.allocator.allocate(900, kWorkspace, 3);  // the first is taken
  REQUIRE(third.data != first.data);
  f.allocator.release(second);
  f.allocator.release(third);
}

TEST_CASE("a released block never serves another stream") {
  Fixture f;
  f.allocator.release(f.allocator.allocate(1000, kWorkspace, 0));
  const auto other_stream = f.allocator.allocate(1000, kWorkspace, 1);
  REQUIRE(f.counts.acquired == 2);
  f.allocator.release(other_stream);
  const auto third = f.allocator.allocate(100, kWorkspace, 2);
  REQUIRE(f.counts.acquired == 3);
  f.allocator.release(third);
}

TEST_CASE("a large free block is cut for smaller requests, and its parts become one again") {
  Fixture f;
  const auto whole = f.allocator.allocate(64'000, kWorkspace, 0);
  f.allocator.release(whole);
  // In every order of releases a part has free neighbours on neither side, on one or on both.
  for (const auto& order : {std::array{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}}) {
    std::vector<Allocator::Block> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(f.allocator.allocate(14'000, kWorkspace, 0));
    for (int i = 0; i < 4; ++i) {
      std::memset(parts[i].data, i, parts[i].bytes);
      const auto offset = static_cast<std::size_t>(parts[i].data - whole.data);
      REQUIRE(offset == i * Allocator::block_bytes(14'000));
    }
    for (int i = 0; i < 4; ++i) {
      const auto* data = parts[i].data;
      REQUIRE(std::all_of(data, data + 14'000, [&](auto byte) { return byte == std::byte(i); }));
    }
    for (const int i : order) f.allocator.release(parts[i]);
    const auto again = f.allocator.allocate(64'000, kWorkspace, 0);
    REQUIRE(again.data == whole.data);
    f.allocator.release(again);
  }
  REQUIRE(f.counts.acquired == 1);
  REQUIRE(f.counts.released == 0);
}

TEST_CASE("a large free block is left whole while less is reserved than was in use at the peak") {
  Fixture f;
  const auto large = f.allocator.allocate(100'000, kWorkspace, 0);
  const auto other = f.allocator.allocate(50'000, kWorkspace, 0);
  f.allocator.release(other);
  f.allocator.trim();
  f.allocator.release(large);
  const auto small = f.allocator.allocate(4000, kWorkspace, 0);
  REQUIRE(f.counts.acquired == 3);
  const auto again = f.allocator.allocate(100'000, kWorkspace, 0);
  REQUIRE(again.data == large.data);
  for (const auto& block : {small, again}) f.allocator.release(block);
}

TEST_CASE("steps that repeat their sizes take memory from the source only once") {
  Fixture f;
  for (int step = 0; step < 5; ++step) {
    std::vector<Allocator::Block> blocks;
    for (std::size_t i = 1; i <= 20; ++i) {
      blocks.push_back(f.allocator.allocate(i * 700, kWorkspace, 0));
    }
    for (const auto& block : blocks) f.allocator.release(block);
  }
  REQUIRE(f.counts.acquired == 20);
  REQUIRE(f.counts.released == 0);
}

TEST_CASE("trim returns unused blocks and keeps those in use") {
  Fixture f;
  const auto kept = f.allocator.allocate(1000, kWorkspace, 0);
  f.allocator.release(f.allocator.allocate(3000, kWorkspace, 0));
  f.allocator.release(f.allocator.allocate(100, kWorkspace, 1));
  const auto occupied = [](std::size_t bytes) {
    return static_cast<std::int64_t>(Allocator::block_bytes(bytes));
  };
  REQUIRE(f.allocator.account().reserved == occupied(1000) + occupied(3000) + occupied(100));
  REQUIRE(f.counts.live == static_cast<std::size_t>(f.allocator.account().reserved));
  f.allocator.trim();
  REQUIRE(f.allocator.account().reserved == occupied(1000));
  REQUIRE(f.counts.live == static_cast<std::size_t>(occupied(1000)));
  f.allocator.release(kept);
}

TEST_CASE("a destroyed allocator returns all its memory") {
  LimitedMemory::Counts counts;
  {
    Allocator allocator({}, std::make_unique<LimitedMemory>(1 << 20, counts));
    allocator.release(allocator.allocate(1000, kWorkspace, 0));
    allocator.release(allocator.allocate(5000, kWorkspace, 2));
  }
  REQUIRE(counts.live == 0);
  REQUIRE(counts.released == 2);
}

TEST_CASE("if the source has no memory, the least that is needed goes back to it") {
  const std::size_t a = 4000, b = 8000, c = 16'000;
  const auto occupied = [](std::size_t bytes) { return Allocator::block_bytes(bytes); };
  Fixture f(occupied(a) + occupied(b) + occupied(c));
  std::vector<Allocator::Block> blocks;
  for (const std::size_t bytes : {a, b, c}) {
    blocks.push_back(f.allocator.allocate(bytes, kWorkspace, 0));
  }
  for (const auto& block : blocks) f.allocator.release(block);
  REQUIRE(f.allocator.account().retries == 0);
  // 8000 bytes go back, not 16,000, and not all.
  const auto other = f.allocator.allocate(6000, kWorkspace, 1);
  REQUIRE(f.counts.released == 1);
  REQUIRE(f.counts.live == occupied(a) + occupied(c) + occupied(6000));
  REQUIRE(f.allocator.account().retries == 1);
  // No free segment is large enough alone: the largest goes back first, then the other.
  f.allocator.release(other);
  const auto large = f.allocator.allocate(occupied(c) + 5000, kWorkspace, 1);
  REQUIRE(f.allocator.account().retries == 2);
  REQUIRE(f.counts.live <= occupied(a) + occupied(b) + occupied(c));
  f.allocator.release(large);
}

TEST_CASE("no more is reserved than the peak and a sixteenth, if free segments can go back") {
  Fixture f;
  for (std::size_t bytes = 100'000; bytes <= 1'600'000; bytes += 100'000) {
    f.allocator.release(f.allocator.allocate(bytes, kWorkspace, 0));
    const MemoryAccount account = f.allocator.account();
    REQUIRE(account.reserved <= account.total.peak * 17 / 16 + 1024);
  }
}

TEST_CASE("running out of memory is an error with the table of live bytes") {
  Fixture f(8192);
  const auto a = f.allocator.allocate(3000, Category::parameters, 0);
  const auto b = f.allocator.allocate(1000, Category::activations, 0);
  REQUIRE_THROWS_WITH(f.allocator.allocate(7000, Category::gradients, 0),
                      Contains("out of memory on cpu") &&
                          Contains("7000 bytes requested as gradients") &&
                          Contains("parameters 3000;") && Contains("activations 1000;") &&
                          Contains("choose a smaller batch") && !Contains("optimizer"));
  REQUIRE(f.allocator.account().total.current == 4000);  // no charge
  REQUIRE(f.allocator.account().total.peak == 4000);
  const auto c = f.allocator.allocate(2000, Category::gradients, 0);  // the allocator still works
  for (const auto& block : {a, b, c}) f.allocator.release(block);
}

TEST_CASE("a request near 2^64 bytes is out of memory, not a small block") {
  Fixture f;
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 100, std::size_t{1} << 63}) {
    REQUIRE_THROWS_WITH(f.allocator.allocate(bytes, kWorkspace, 0), Contains("live bytes: none"));
  }
}

TEST_CASE("zero bytes are a null block that costs nothing") {
  Fixture f;
  const auto block = f.allocator.allocate(0, kWorkspace, 0);
  REQUIRE(block.data == nullptr);
  REQUIRE(block.bytes == 0);
  f.allocator.release(block);
  REQUIRE(f.allocator.account().reserved == 0);
  REQUIRE(f.counts.acquired == 0);
}

TEST_CASE("the history lists allocations and releases in order") {
  Fixture f;
  const auto before = f.allocator.allocate(10, kWorkspace, 0);
  f.allocator.record_history(true);
  const auto a = f.allocator.allocate(100, Category::parameters, 0);
  f.allocator.release(before);
  f.allocator.record_history(false);
  f.allocator.release(a);

  const auto history = f.allocator.history();
  REQUIRE(history.size() == 2);
  REQUIRE(history[0].category == Category::parameters);
  REQUIRE(history[0].bytes == 100);
  REQUIRE(history[0].total_after == 110);
  REQUIRE(history[1].category == kWorkspace);
  REQUIRE(history[1].bytes == -10);
  REQUIRE(history[1].total_after == 100);
  f.allocator.record_history(true);
  REQUIRE(f.allocator.history().empty());
}

TEST_CASE("threads may allocate and release at once") {
  Allocator allocator({}, host_memory());
  std::vector<std::thread> threads;
  std::vector<int> torn(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&allocator, &torn, t] {
      std::mt19937 random(t);
      std::vector<Allocator::Block> blocks;
      for (int i = 0; i < 500; ++i) {
        const std::size_t bytes = 1 + random() % 2000;
        blocks.push_back(allocator.allocate(bytes, static_cast<Category>(t), t % 2));
        std::memset(blocks.back().data, t, bytes);
        if (blocks.size() > 20) {
          const auto block = blocks[random() % blocks.size()];
          std::erase_if(blocks, [&](const auto& other) { return other.data == block.data; });
          for (std::size_t k = 0; k < block.bytes; ++k) {
            torn[t] += block.data[k] != static_cast<std::byte>(t);
          }
          allocator.release(block);
        }
      }
      for (const auto& block : blocks) allocator.release(block);
    });
  }
  for (auto& thread : threads) thread.join();
  REQUIRE(torn == std::vector<int>(4, 0));
  for (int i = 0; i < kCategories; ++i) {
    REQUIRE(allocator.account().categories[i].current == 0);
  }
}

TEST_CASE("category scopes nest and end") {
  REQUIRE(current_category() == Category::other);
  {
    const CategoryScope outer(Category::parameters);
    {
      const CategoryScope inner(Category::gradients);
      REQUIRE(current_category() == Category::gradients);
    }
    REQUIRE(current_category() == Category::parameters);
    Category elsewhere{};
    std::thread([&] { elsewhere = current_category(); }).join();
    REQUIRE(elsewhere == Category::other);  // a scope holds for its thread only
  }
  REQUIRE(current_category() == Category::other);
}

TEST_CASE("every category has a name") {
  REQUIRE(kCategories == 7);
  REQUIRE(name_of(Category::other) == "other");
  REQUIRE(name_of(Category::parameters) == "parameters");
}

}  // namespace tessera
