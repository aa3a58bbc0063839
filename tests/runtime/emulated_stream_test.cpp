// The emulated CUDA runtime's streams and events: the order of work.
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/emulation/toolkit/device_queue.h"
#include "tests/runtime/emulated_device.h"
#include "tests/support/waiting.h"

namespace tessera::test {

using Catch::Contains;
using emulation::DeviceOptionsGuard;
using emulation::Progress;

TEST_CASE("work runs when the host waits for it, and only as far as that wait requires") {
  const Stream a, b;
  std::vector<char> order;
  emulation::enqueue(a, [&] { order.push_back('a'); });
  emulation::enqueue(b, [&] { order.push_back('b'); });
  const Event between(cudaEventDisableTiming);
  check(cudaEventRecord(between, b));
  emulation::enqueue(b, [&] { order.push_back('c'); });
  REQUIRE(order.empty());
  check(cudaEventSynchronize(between));
  REQUIRE(order == std::vector{'b'});
  check(cudaStreamWaitEvent(a, between, 0));
  check(cudaStreamSynchronize(a));
  REQUIRE(order == std::vector{'b', 'a'});
  check(cudaDeviceSynchronize());
  REQUIRE(order == std::vector{'b', 'a', 'c'});
}

TEST_CASE("eager work runs at once") {
  const DeviceOptionsGuard eager({.progress = Progress::eager});
  const Stream stream;
  int runs = 0;
  emulation::enqueue(stream, [&] { ++runs; });
  REQUIRE(runs == 1);
}

TEST_CASE("a wait is for the event's last recording before the wait was queued") {
  const Stream a, b;
  std::vector<int> order;
  const Event event;
  check(cudaStreamWaitEvent(b, event, 0));  // never recorded: no wait
  emulation::enqueue(a, [&] { order.push_back(1); });
  check(cudaEventRecord(event, a));
  check(cudaStreamWaitEvent(b, event, 0));
  emulation::enqueue(a, [&] { order.push_back(2); });
  check(cudaEventRecord(event, a));
  emulation::enqueue(b, [&] { order.push_back(3); });
  check(cudaStreamSynchronize(b));
  REQUIRE(order == std::vector{1, 3});
  check(cudaEventSynchronize(event));
  REQUIRE(order == std::vector{1, 3, 2});
}

TEST_CASE("a query says no before it says yes") {
  const Stream stream;
  const Event event;
  check(cudaEventQuery(event));
  for (int i = 0; i < 3; ++i) emulation::enqueue(stream, [] {});
  check(cudaEventRecord(event, stream));
  REQUIRE(cudaEventQuery(event) == cudaErrorNotReady);
  int queries = 1;
  while (cudaEventQuery(event) == cudaErrorNotReady) ++queries;
  REQUIRE(queries == 4);
}

TEST_CASE("events measure the time between them") {
  const Stream stream;
  const Event start, stop, untimed(cudaEventDisableTiming);
  check(cudaEventRecord(start, stream));
  emulation::enqueue(stream, [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });
  check(cudaEventRecord(stop, stream));
  check(cudaEventRecord(untimed, stream));
  float milliseconds = 0.0f;
  REQUIRE(cudaEventElapsedTime(&milliseconds, start, stop) == cudaErrorNotReady);
  check(cudaStreamSynchronize(stream));
  check(cudaEventElapsedTime(&milliseconds, start, stop));
  REQUIRE(milliseconds >= 3.0f);
  REQUIRE(cudaEventElapsedTime(&milliseconds, start, untimed) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("handles that were destroyed, and the default stream, are refused") {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  bool ran = false;
  emulation::enqueue(stream, [&] { ran = true; });
  check(cudaStreamDestroy(stream));
  REQUIRE(ran);
  REQUIRE(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  REQUIRE_THROWS_WITH(emulation::enqueue(stream, [] {}), Contains("the stream was destroyed"));
  REQUIRE_THROWS_WITH(emulation::enqueue(nullptr, [] {}), Contains("the default stream"));
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event));
  check(cudaEventDestroy(event));
  REQUIRE(cudaEventSynchronize(event) == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaEventDestroy(event) == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaStreamCreateWithFlags(&stream, 0) == cudaErrorInvalidValue);
}

TEST_CASE("shuffled: a missing wait shows under some seed, and ordered work stays ordered") {
  int early = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const DeviceOptionsGuard shuffled({.progress = Progress::shuffled, .seed = seed});
    const Stream a, b;
    const Event event;
    const Ints source(1), with_wait(1), without(1);
    set(source.data, 7, a);
    copy(without.data, source.data, 1, b);  // no wait for a
    check(cudaEventRecord(event, a));
    check(cudaStreamWaitEvent(b, event, 0));
    copy(with_wait.data, source.data, 1, b);
    REQUIRE(value_of(with_wait.data, b) == 7);
    early += value_of(without.data, b) != 7;
  }
  REQUIRE(early > 5);
  REQUIRE(early < 35);
}

TEST_CASE("one seed gives one order") {
  const auto order_under = [](std::uint64_t seed) {
    const DeviceOptionsGuard shuffled({.progress = Progress::shuffled, .seed = seed});
    const Stream streams[3];
    std::string order;
    for (int i = 0; i < 30; ++i) {
      emulation::enqueue(streams[i % 3], [&order, i] { order += static_cast<char>('a' + i); });
    }
    check(cudaDeviceSynchronize());
    return order;
  };
  REQUIRE(order_under(1) == order_under(1));
  REQUIRE(order_under(1) != order_under(2));
}

TEST_CASE("threads share the device, each with its own stream") {
  std::vector<int> sums(3);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&sums, t] {
      cudaStream_t stream = nullptr;
      int* data = nullptr;
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      cudaMalloc(reinterpret_cast<void**>(&data), 4);
      cudaMemsetAsync(data, 0, 4, stream);
      for (int i = 0; i < 50; ++i) {
        emulation::enqueue(stream, [=] { *data += i + t; });
        if (i % 10 == 0) cudaStreamSynchronize(stream);
      }
      cudaMemcpyAsync(&sums[t], data, 4, cudaMemcpyDefault, stream);
      cudaFree(data);
      cudaStreamDestroy(stream);
    });
  }
  for (auto& thread : threads) thread.join();
  REQUIRE(sums == std::vector{1225, 1275, 1325});
}

TEST_CASE("a stream may wait for a point that another thread queues later") {
  using namespace emulation;
  const Stream a, b;
  const auto point = std::make_shared<Point>();
  std::vector<int> order;
  {
    const auto lock = Devices::get().lock();
    Devices::get().enqueue(*a.handle, {.wait = point});
  }
  enqueue(a, [&] { order.push_back(2); });
  std::thread other([&] {
    test::wait_for("the host waits for the point", [] { return waiting_host_threads() == 1; });
    enqueue(b, [&] { order.push_back(1); });
    const auto lock = Devices::get().lock();
    Devices::get().enqueue(*b.handle, {.pass = point});
  });
  check(cudaStreamSynchronize(a));
  other.join();
  REQUIRE(order == std::vector{1, 2});
}

TEST_CASE("streams that wait for one another fail the device instead of hanging") {
  using namespace emulation;
  const Stream a, b;
  const auto of_a = std::make_shared<Point>(), of_b = std::make_shared<Point>();
  {
    const auto lock = Devices::get().lock();
    Devices::get().enqueue(*a.handle, {.wait = of_b});
    Devices::get().enqueue(*a.handle, {.pass = of_a});
    Devices::get().enqueue(*b.handle, {.wait = of_a});
    Devices::get().enqueue(*b.handle, {.pass = of_b});
  }
  REQUIRE(cudaStreamSynchronize(a) == cudaErrorLaunchFailure);
  REQUIRE_THAT(cudaGetErrorString(cudaErrorLaunchFailure), Contains("wait for one another"));
  forget_failures();
}

TEST_CASE("a stream keeps its priority, clamped to the device's range") {
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  REQUIRE(greatest < least);  // a smaller number goes first
  for (const auto& [asked, given] : {std::pair(least, least),
                                     {greatest, greatest},
                                     {greatest - 1, greatest},
                                     {least + 1, least}}) {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, asked));
    int priority = 99;
    check(cudaStreamGetPriority(stream, &priority));
    REQUIRE(priority == given);
    check(cudaStreamDestroy(stream));
  }
}

}  // namespace tessera::test
