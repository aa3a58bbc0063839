#include "runtime/context.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/tensor.h"
#include "tests/support/rank.h"

namespace tessera {

using Catch::Contains;

TEST_CASE("without a guard a thread has no context") {
  REQUIRE(context_or_null() == nullptr);
  REQUIRE_THROWS_WITH(context(), Contains("ContextGuard"));
  REQUIRE_THROWS_WITH(current_stream(), Contains("ContextGuard"));
}

TEST_CASE("a guard makes a context current and restores the previous one") {
  RankContext outer({.rank = 0, .world_size = 2, .threads = 1});
  RankContext inner({.rank = 1, .world_size = 2, .threads = 1});
  {
    const ContextGuard outer_guard(outer);
    const StreamGuard stream_guard(outer.side_stream("communication"));
    {
      const ContextGuard inner_guard(inner);
      REQUIRE(&context() == &inner);
      REQUIRE(context().rank() == 1);
      REQUIRE(current_stream().name() == "compute");
    }
    REQUIRE(&context() == &outer);
    REQUIRE(current_stream().name() == "communication");
  }
  REQUIRE(context_or_null() == nullptr);
}

TEST_CASE("a rank outside the world and a negative number of threads are refused") {
  REQUIRE_THROWS_WITH(RankContext({.rank = 2, .world_size = 2}), Contains("rank 2 of 2"));
  REQUIRE_THROWS_WITH(RankContext({.rank = -1}), Contains("rank -1"));
  REQUIRE_THROWS_WITH(RankContext({.world_size = 0}), Contains("of 0"));
  REQUIRE_THROWS_WITH(RankContext({.threads = -1}), Contains("-1 threads"));
}

TEST_CASE("the thread budget is the given number, or the rank's share of the machine") {
  REQUIRE(RankContext({.threads = 3}).threads().size() == 3);
  REQUIRE(RankContext(ContextOptions{}).threads().size() == available_threads());
  REQUIRE(RankContext({.world_size = 100000}).threads().size() == 1);
}

TEST_CASE("a side stream is made once per name and has its own number") {
  const test::Rank rank(1);
  const Stream& gather = context().side_stream("gather");
  const Stream& reduce = context().side_stream("reduce");
  REQUIRE(&context().side_stream("gather") == &gather);
  REQUIRE(gather.name() == "gather");
  REQUIRE(gather.id() != reduce.id());
  REQUIRE(gather.id() != context().compute_stream().id());
}

TEST_CASE("work on a side stream runs in the context, with that stream current") {
  const test::Rank rank(1);
  const Stream& side = context().side_stream("side");
  const RankContext* seen = nullptr;
  std::string stream, after_nesting;
  side.enqueue([&] {
    seen = context_or_null();
    stream = current_stream().name();
    context().side_stream("other").synchronize();
    after_nesting = current_stream().name();
  });
  side.synchronize();
  REQUIRE(seen == &context());
  REQUIRE(stream == "side");
  REQUIRE(after_nesting == "side");
}

TEST_CASE("memory taken on a side stream returns to that stream's cache") {
  const test::Rank rank(1);
  const Stream& side = context().side_stream("side");
  const std::byte* first = nullptr;
  const std::byte* again = nullptr;
  side.enqueue([&] { first = Tensor::empty({1000}, DType::f32).raw(); });
  side.synchronize();
  const Tensor here = Tensor::empty({1000}, DType::f32);  // the compute stream's: a new block
  REQUIRE(here.raw() != first);
  side.enqueue([&] { again = Tensor::empty({1000}, DType::f32).raw(); });
  side.synchronize();
  REQUIRE(again == first);
}

TEST_CASE("a tensor taken on a side stream and dropped on the caller returns to the side stream") {
  const test::Rank rank(1);
  const Stream& side = context().side_stream("side");
  Tensor tensor;
  side.enqueue([&] { tensor = Tensor::empty({1000}, DType::f32); });
  side.synchronize();
  const std::byte* data = tensor.raw();
  tensor = Tensor();
  REQUIRE(Tensor::empty({1000}, DType::f32).raw() != data);
  const StreamGuard guard(side);
  REQUIRE(Tensor::empty({1000}, DType::f32).raw() == data);
}

TEST_CASE("ranks that are threads share no state") {
  std::vector<std::thread> threads;
  std::vector<std::int64_t> peaks(4);
  std::vector<int> ranks(4);
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      RankContext mine({.rank = r, .world_size = 4, .threads = 1});
      const ContextGuard guard(mine);
      const CategoryScope scope(Category::parameters);
      Tensor tensor = Tensor::zeros({r + 1}, DType::f64);
      mine.side_stream("side").enqueue([&] { tensor = tensor.clone(); });
      mine.side_stream("side").synchronize();
      peaks[r] = mine.allocator().account()[Category::parameters].peak;
      ranks[r] = context().rank();
    });
  }
  for (auto& thread : threads) thread.join();
  REQUIRE(ranks == std::vector<int>{0, 1, 2, 3});
  REQUIRE(peaks == std::vector<std::int64_t>{8, 16, 24, 32});
}

TEST_CASE("a device that the build lacks is refused by name") {
  REQUIRE_THROWS_WITH(RankContext({.device = {DeviceType::cuda, 99}}), Contains("cuda:99"));
  REQUIRE(to_string(Device{}) == "cpu");
}

TEST_CASE("a context makes one state of each type and destroys it") {
  static int alive = 0;
  struct Counted {
    Counted() { ++alive; }
    ~Counted() { --alive; }
    int value = 0;
  };
  {
    RankContext one, two;
    one.state<Counted>().value = 5;
    two.state<int>() = 7;
    CHECK(one.state<Counted>().value == 5);
    CHECK(two.state<Counted>().value == 0);
    CHECK(one.state<int>() == 0);
    CHECK(two.state<int>() == 7);
    CHECK(alive == 2);
  }
  CHECK(alive == 0);
}

TEST_CASE("work that is queued on the CPU when a context ends still finds its states") {
  static int alive = 0;
  struct Counted {
    Counted() { ++alive; }
    ~Counted() { --alive; }
  };
  int found = 0;
  {
    RankContext here;
    here.state<Counted>();
    here.side_stream("copies").enqueue([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      found = alive;
    });
  }
  CHECK(found == 1);
  CHECK(alive == 0);
}

}  // namespace tessera
