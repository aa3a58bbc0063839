#include "runtime/stream.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/rank.h"

namespace tessera {
namespace {

/// Blocks work until the test opens it. So "not yet" is certain without sleeping.
class Gate {
 public:
  void open() {
    open_ = true;
    open_.notify_all();
  }
  void pass() const { open_.wait(false); }

 private:
  std::atomic<bool> open_{false};
};

void short_delay() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

[[noreturn]] void explode() {
  throw std::runtime_error("boom");
}

}  // namespace

TEST_CASE("an inline stream runs work at once, on the caller") {
  const Stream stream = Stream::inline_stream("compute", 0);
  std::thread::id ran_on;
  stream.enqueue([&] { ran_on = std::this_thread::get_id(); });
  REQUIRE(ran_on == std::this_thread::get_id());
  REQUIRE(stream.record().complete());
  REQUIRE(stream.name() == "compute");
  REQUIRE(stream.id() == 0);
  stream.synchronize();
  REQUIRE_THROWS_WITH(stream.enqueue(explode), "boom");
  REQUIRE_NOTHROW(stream.synchronize());  // enqueue has thrown; there is nothing to report
}

TEST_CASE("a worker stream runs work in order on one other thread") {
  const Stream stream = Stream::worker("side", 1, nullptr);
  std::vector<int> order;
  std::vector<std::thread::id> ran_on;
  for (int i = 0; i < 100; ++i) {
    stream.enqueue([&, i] {
      order.push_back(i);
      ran_on.push_back(std::this_thread::get_id());
    });
  }
  stream.synchronize();
  for (int i = 0; i < 100; ++i) {
    REQUIRE(order[i] == i);
    REQUIRE(ran_on[i] == ran_on[0]);
  }
  REQUIRE(ran_on[0] != std::this_thread::get_id());
}

TEST_CASE("an event is complete once everything before it has run") {
  const Stream stream = Stream::worker("side", 1, nullptr);
  Gate gate;
  int value = 0;
  stream.enqueue([&] {
    gate.pass();
    value = 7;
  });
  const Event event = stream.record();
  REQUIRE_FALSE(event.complete());
  gate.open();
  event.synchronize();
  REQUIRE(event.complete());
  REQUIRE(value == 7);
}

TEST_CASE("the default event is complete") {
  REQUIRE(Event().complete());
  REQUIRE_NOTHROW(Event().synchronize());
  const Stream stream = Stream::worker("side", 1, nullptr);
  stream.wait(Event());
  REQUIRE_NOTHROW(stream.synchronize());
}

TEST_CASE("a stream that waits for another's event sees its work") {
  const Stream first = Stream::worker("first", 1, nullptr);
  const Stream second = Stream::worker("second", 2, nullptr);
  Gate gate;
  int value = 0, seen = 0;
  first.enqueue([&] {
    gate.pass();
    value = 1;
  });
  second.wait(first.record());
  second.enqueue([&] { seen = value; });
  gate.open();
  second.synchronize();
  REQUIRE(seen == 1);
}

TEST_CASE("an inline stream that waits blocks its caller") {
  const Stream compute = Stream::inline_stream("compute", 0);
  const Stream side = Stream::worker("side", 1, nullptr);
  side.set_delay(short_delay);
  int value = 0;
  side.enqueue([&] { value = 5; });
  compute.wait(side.record());
  REQUIRE(value == 5);
}

TEST_CASE("a ring of streams passes a token in order, with and without delays") {
  for (const bool delayed : {false, true}) {
    std::vector<Stream> streams;
    for (int i = 0; i < 3; ++i) streams.push_back(Stream::worker("s", 1 + i, nullptr));
    if (delayed) streams[1].set_delay(short_delay);
    std::vector<int> order;  // only the events order accesses
    Event last;
    for (int i = 0; i < 30; ++i) {
      const Stream& stream = streams[i % 3];
      stream.wait(last);
      stream.enqueue([&order, i] { order.push_back(i); });
      last = stream.record();
    }
    last.synchronize();
    for (int i = 0; i < 30; ++i) REQUIRE(order[i] == i);
  }
}

TEST_CASE("a delay runs before every piece of work queued after it") {
  const Stream stream = Stream::worker("side", 1, nullptr);
  int delays = 0, works = 0;
  stream.enqueue([&] { ++works; });
  stream.set_delay([&] { ++delays; });
  for (int i = 0; i < 4; ++i) stream.enqueue([&] { ++works; });
  stream.set_delay(nullptr);
  stream.enqueue([&] { ++works; });
  stream.synchronize();
  REQUIRE(works == 6);
  REQUIRE(delays == 4);
}

TEST_CASE("an exception poisons a worker stream: later work is skipped, every wait rethrows") {
  const Stream stream = Stream::worker("side", 1, nullptr);
  const Event before = stream.record();
  bool ran = false;
  stream.enqueue(explode);
  stream.enqueue([&] { ran = true; });
  const Event after = stream.record();
  REQUIRE_THROWS_WITH(after.synchronize(), "boom");
  REQUIRE(after.complete());
  REQUIRE_FALSE(ran);
  REQUIRE_NOTHROW(before.synchronize());
  REQUIRE_THROWS_WITH(stream.synchronize(), "boom");
  REQUIRE_THROWS_WITH(after.synchronize(), "boom");
}

TEST_CASE("a failure travels along the streams that wait for it") {
  const Stream first = Stream::worker("first", 1, nullptr);
  const Stream second = Stream::worker("second", 2, nullptr);
  const Stream compute = Stream::inline_stream("compute", 0);
  first.enqueue(explode);
  const Event event = first.record();
  bool ran = false;
  second.wait(event);
  second.enqueue([&] { ran = true; });
  REQUIRE_THROWS_WITH(second.synchronize(), "boom");
  REQUIRE_FALSE(ran);
  REQUIRE_THROWS_WITH(compute.wait(event), "boom");
  // Also if the event is already complete.
  REQUIRE(event.complete());
  const Stream third = Stream::worker("third", 3, nullptr);
  third.wait(event);
  REQUIRE_THROWS_WITH(third.synchronize(), "boom");
}

TEST_CASE("work queued from within work runs inline") {
  const Stream stream = Stream::worker("side", 1, nullptr);
  std::vector<int> order;
  stream.enqueue([&] {
    order.push_back(1);
    stream.enqueue([&] { order.push_back(2); });
    stream.record().synchronize();
    stream.synchronize();
    order.push_back(3);
  });
  stream.enqueue([&] { order.push_back(4); });
  stream.synchronize();
  REQUIRE(order == std::vector<int>{1, 2, 3, 4});
}

TEST_CASE("a worker stream runs all queued work before it is destroyed") {
  std::atomic<int> works = 0;
  {
    const Stream stream = Stream::worker("side", 1, nullptr);
    stream.set_delay(short_delay);
    for (int i = 0; i < 10; ++i) stream.enqueue([&] { ++works; });
  }
  REQUIRE(works == 10);
}

TEST_CASE("an event outlives its stream") {
  Event event;
  {
    const Stream stream = Stream::worker("side", 1, nullptr);
    stream.enqueue(explode);
    event = stream.record();
  }
  REQUIRE(event.complete());
  REQUIRE_THROWS_WITH(event.synchronize(), "boom");
}

TEST_CASE("several threads may queue on one stream") {
  const Stream stream = Stream::worker("side", 1, nullptr);
  int sum = 0;  // used by the stream's thread only
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 250; ++i) stream.enqueue([&] { ++sum; });
    });
  }
  for (auto& thread : threads) thread.join();
  stream.synchronize();
  REQUIRE(sum == 1000);
}

}  // namespace tessera
