// Streams of a GPU: the order of work, and how long memory is held.
#include "runtime/cuda/stream.h"

#include <catch2/catch.hpp>
#include <future>
#include <numeric>

#include "runtime/context.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/fault.h"
#include "runtime/error.h"
#include "runtime/tensor.h"
#include "runtime/update_stream.h"
#include "tests/support/rank.h"

#if defined(TESSERA_EMULATED)
#include "runtime/emulation/toolkit/emulated_device.h"

#include "tests/support/child.h"
#endif

namespace tessera {
namespace {

using Catch::Contains;

std::int64_t live_bytes() {
  return context().allocator().account().total.current;
}
std::int64_t live_host_bytes() {
  return context().host_allocator().account().total.current;
}

const Stream& side() {
  return context().side_stream("side");
}

/// Queues work on the side stream that uses `tensor`.
void use_on_side(const Tensor& tensor) {
  const StreamGuard guard(side());
  tensor.zero();
}

}  // namespace

TEST_CASE("a side stream's work is held until the compute stream has waited for it") {
  const test::Rank rank;
  const std::int64_t before = live_bytes();
  Tensor first = Tensor::zeros({1000}, DType::f32);
  Tensor second = Tensor::zeros({500}, DType::f32);
  side().wait(current_stream().record());
  use_on_side(first);
  const Event event = side().record();
  use_on_side(second);
  first = second = {};
  REQUIRE(live_bytes() == before + 6000);
  while (!event.complete()) {
  }
  REQUIRE(live_bytes() == before + 6000);  // a query releases nothing
  current_stream().wait(event);
  REQUIRE(live_bytes() == before + 2000);
  side().synchronize();
  REQUIRE(live_bytes() == before);
}

TEST_CASE("a wait by another side stream does not release memory") {
  const test::Rank rank;
  const std::int64_t before = live_bytes();
  use_on_side(Tensor::zeros({1000}, DType::f32));
  context().side_stream("other").wait(side().record());
  REQUIRE(live_bytes() == before + 4000);
  side().record().synchronize();
  REQUIRE(live_bytes() == before);
}

TEST_CASE("host memory in a copy is held until the host has waited") {
  const test::Rank rank;
  const Tensor target = Tensor::zeros({100}, DType::f32);
  const std::int64_t before = live_host_bytes();
  target.copy_from(Tensor::empty_on_host({100}, DType::f32));
  REQUIRE(live_host_bytes() == before + 400);
  current_stream().wait(current_stream().record());  // stream to stream: the host has not waited
  REQUIRE(live_host_bytes() == before + 400);
  current_stream().synchronize();
  REQUIRE(live_host_bytes() == before);
}

TEST_CASE("a destroyed stream releases the memory that it held") {
  std::shared_ptr<Allocator> allocator;
  {
    const test::Rank rank;
    allocator = context().shared_allocator();
    use_on_side(Tensor::zeros({1000}, DType::f32));
  }
  REQUIRE(allocator->account().total.current == 0);
}

TEST_CASE("an event outlives its stream and context") {
  Event event;
  {
    const test::Rank rank;
    use_on_side(Tensor::zeros({10}, DType::f32));
    event = side().record();
  }
  REQUIRE_NOTHROW(event.synchronize());
  REQUIRE(event.complete());
}

TEST_CASE("the host goes on while a thread queues the work of a stream") {
  const test::Rank rank;
  const Stream stream = cuda::queued_by_thread(side(), context());
  const Tensor values = Tensor::from(std::vector<float>{1, 2, 3}, {3});
  const std::int64_t before = live_bytes();
  Tensor copy = Tensor::zeros({3}, DType::f32);
  std::promise<void> others;
  stream.wait(current_stream().record());
  stream.enqueue([copy, values, come = others.get_future().share()] {
    come.wait();
    copy.copy_from(values);
  });
  const Event copied = stream.record();
  CHECK_FALSE(copied.complete());
  others.set_value();
  current_stream().wait(copied);
  CHECK(copy.to_vector<float>() == std::vector<float>{1, 2, 3});
  copy = {};
  CHECK(live_bytes() == before);
}

TEST_CASE("a failure of work that a thread queues is raised by every wait for it") {
  const test::Rank rank;
  const Stream stream = cuda::queued_by_thread(side(), context());
  stream.enqueue([] { throw Error("rank 1 is missing"); });
  const Event event = stream.record();
  CHECK_THROWS_WITH(current_stream().wait(event), "rank 1 is missing");
  CHECK_THROWS_WITH(event.synchronize(), "rank 1 is missing");
  CHECK(event.complete());
}

TEST_CASE("a stream of the CPU and a stream of a GPU wait for each other") {
  const test::Rank rank;
  const Stream worker = Stream::worker("worker", 7, nullptr);
  std::vector<int> order;
  const Tensor tensor = Tensor::zeros({4}, DType::i32);
  worker.wait(current_stream().record());
  worker.enqueue([&] { order.push_back(1); });
  current_stream().wait(worker.record());
  order.push_back(2);
  REQUIRE(order == std::vector{1, 2});
  REQUIRE_THROWS_WITH(cuda::native(worker), Contains("stream worker is not a GPU's"));
}

TEST_CASE("an exception while work is queued goes to the caller of enqueue") {
  const test::Rank rank;
  REQUIRE_THROWS_WITH(side().enqueue([] { throw Error("no"); }), "no");
  REQUIRE_NOTHROW(side().synchronize());
}

TEST_CASE("a side stream goes before the compute stream, and that goes before updates") {
  const test::Rank rank;
  const auto priority_of = [](const Stream& stream) {
    int priority = 0;
    REQUIRE(cudaStreamGetPriority(cuda::native(stream), &priority) == cudaSuccess);
    return priority;
  };
  const Stream& updates = context().side_stream(kUpdateStream);
  REQUIRE(priority_of(side()) < priority_of(current_stream()));  // a smaller number goes first
  REQUIRE(priority_of(current_stream()) < priority_of(updates));
}

TEST_CASE("bad data that a kernel reported is raised once, when the host next synchronizes") {
  const test::Rank rank;
  const cuda::FaultSlot ids = cuda::fault_slot(current_stream(), "the id at {} is too large");
  const cuda::FaultSlot targets = cuda::fault_slot(current_stream(), "the target at {} is bad");
  REQUIRE(cuda::fault_slot(current_stream(), "the id at {} is too large").kind == ids.kind);
  REQUIRE(targets.kind != ids.kind);
  REQUIRE(targets.word == ids.word);
  REQUIRE(*ids.word == cuda::kNoFault);
  *ids.word = 5u << 8 | ids.kind;
  REQUIRE_THROWS_WITH(current_stream().synchronize(), "the id at 5 is too large");
  REQUIRE_NOTHROW(current_stream().synchronize());
  *targets.word = (cuda::FaultWord{1} << 40 | 7) << 8 | targets.kind;
  REQUIRE_THROWS_WITH(current_stream().synchronize(), "the target at 1099511627783 is bad");
  *targets.word = 0xfe;  // a kernel wrote over the word
  REQUIRE_THROWS_WITH(current_stream().synchronize(), Contains("0xfe"));
}

TEST_CASE("a stream refuses more kinds of faults than a word can tell apart") {
  const test::Rank rank;
  std::vector<std::string> messages;
  for (int i = 0; i <= 256; ++i) messages.push_back("message " + std::to_string(i));
  for (int i = 0; i < 256; ++i) cuda::fault_slot(side(), messages[i].c_str());
  REQUIRE_NOTHROW(cuda::fault_slot(side(), messages[0].c_str()));
  REQUIRE_THROWS_WITH(cuda::fault_slot(side(), messages[256].c_str()), Contains("256"));
}

#if defined(TESSERA_EMULATED)
TEST_CASE("a missing wait between streams shows") {
  const test::Rank rank;
  for (const bool waits : {false, true}) {
    const std::vector<std::int32_t> ones(100, 1);
    const Tensor target = Tensor::empty({100}, DType::i32);
    const Tensor source = Tensor::from(ones, {100});
    if (waits) side().wait(current_stream().record());
    const StreamGuard guard(side());
    target.copy_from(source);
    REQUIRE((target.to_vector<std::int32_t>() == ones) == waits);
  }
}

TEST_CASE("a kernel's failure is shown with the emulator's message") {
  {
    const test::Rank rank;
    emulation::enqueue(cuda::native(current_stream()), [] { throw Error("thread 3 fell over"); });
    REQUIRE_THROWS_WITH(current_stream().synchronize(),
                        "cudaStreamSynchronize: unspecified launch failure: thread 3 fell over "
                        "(cudaErrorLaunchFailure)");
    REQUIRE_THROWS_WITH(Tensor::zeros({1}, DType::f32), Contains("thread 3 fell over"));
  }
  emulation::forget_failures();
}

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("a block released too early, or overrun, is reported") {
  enum class Mistake { none, too_early, too_far };
  for (const Mistake mistake : {Mistake::none, Mistake::too_early, Mistake::too_far}) {
    const test::Child child = test::run_child([&] {
      const test::Rank rank;
      for (int i = 0; i < 2; ++i) {  // new, then from the cache
        Tensor tensor = Tensor::zeros({100}, DType::f32);
        float* const data = tensor.data<float>();
        side().wait(current_stream().record());
        emulation::enqueue(cuda::native(side()),
                           [=] { data[mistake == Mistake::too_far ? 100 : 99] = 1.0f; });
        if (mistake != Mistake::too_early) current_stream().wait(side().record());
        tensor = {};
        current_stream().synchronize();
        side().synchronize();
      }
    });
    CAPTURE(child.output);
    REQUIRE(child.failed() == (mistake != Mistake::none));
    if (mistake != Mistake::none) REQUIRE_THAT(child.output, Contains("use-after-poison"));
  }
}
#endif
#endif

}  // namespace tessera
