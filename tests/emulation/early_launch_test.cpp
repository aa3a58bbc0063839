// Launches that begin before the launch ahead has ended, and that broken rules are noticed.
#include <catch2/catch.hpp>

#include "kernels/cuda/early_launch.h"
#include "tests/runtime/emulated_device.h"
#include "tests/runtime/emulated_graph.h"
#include "tests/support/child.h"
#include "tests/support/emulated_capability.h"
#include "tests/support/rank.h"
#include "tests/support/schedule_guard.h"

namespace tessera::test {
namespace {

using Catch::Contains;

/// Bugs of the kernel below.
enum class Bug { none, reads_early, writes_early, one_thread_returns };

constexpr unsigned kThreads = 64, kBlocks = 3;

/// Adds 1 to values [blocks * threads]. The ones are prepared before the wait.
template <Bug bug>
__global__ void add_one(int* values) {
  gpu::SharedMemory memory;
  int* const ones = memory.take<int>(kThreads);
  int* const own = values + blockIdx.x * kThreads + threadIdx.x;
  ones[threadIdx.x] = bug == Bug::reads_early ? *own + 1 : 1;
  __syncthreads();
  if (bug == Bug::writes_early) *own = 0;
  if (bug == Bug::one_thread_returns && threadIdx.x == 5) return;
  gpu::wait_for_launch_ahead();
  *own += ones[kThreads - 1 - threadIdx.x];
}

template <Bug bug = Bug::none>
void launch(const Ints& values, cudaStream_t stream) {
  gpu::launch_early(add_one<bug>, dim3(kBlocks), dim3(kThreads), kThreads * sizeof(int), stream,
                    values.data);
}

TEST_CASE("early launches come after the work ahead, and before the work behind") {
  const Rank rank;
  const Stream stream;
  const Ints values(kBlocks * kThreads);
  for (const emulation::Schedule& schedule : kSchedules) {
    const ScheduleGuard guard(schedule);
    check(cudaMemsetAsync(values.data, 0, 4 * kBlocks * kThreads, stream));
    for (int i = 0; i < 3; ++i) launch(values, stream);
    for (const int place : {0, 5, 191}) REQUIRE(value_of(values.data + place, stream) == 3);
  }
}

TEST_CASE("each thread of an early launch waits for the launch ahead") {
  const Rank rank;
  const auto run = [](bool early) {
    kernel_options().early_launch = early;
    const Stream stream;
    const Ints values(kBlocks * kThreads);
    launch<Bug::one_thread_returns>(values, stream);
    return cudaStreamSynchronize(stream);
  };
  CHECK(run(false) == cudaSuccess);
  const cudaError_t status = run(true);
  CHECK(status == cudaErrorLaunchFailure);
  CHECK_THAT(cudaGetErrorString(status),
             Contains("thread (5,0,0)") &&
                 Contains("the thread ends without a wait for the launch ahead"));
  emulation::forget_failures();
}

/// The output of a process that launches the kernel, queued or as a graph.
template <Bug bug>
std::string fault(bool as_graph) {
  const Child child = run_child([&] {
    const Rank rank;
    const Stream stream;
    const Ints values(kBlocks * kThreads);
    if (as_graph) {
      const Graph graph = capture(stream, [&] { launch<bug>(values, stream); });
      cudaGraphLaunch(graph, stream);
    } else {
      launch<bug>(values, stream);
    }
    cudaStreamSynchronize(stream);
  });
  CHECK(child.failed());
  return child.output;
}

TEST_CASE("a kernel of an early launch touches no global memory before its wait") {
  const auto text =
      Contains("a kernel that has not waited for the launch ahead touches memory of device 0");
  CHECK_THAT(fault<Bug::reads_early>(/*as_graph=*/false), text);
  CHECK_THAT(fault<Bug::writes_early>(/*as_graph=*/false), text);
  CHECK_THAT(fault<Bug::reads_early>(/*as_graph=*/true), text);
}

TEST_CASE("a graph that is refused leaves the next launch as it is") {
  const Rank rank;
  const Stream stream;
  const Graph graph = [&] {
    const Ints freed(kBlocks * kThreads);
    return capture(stream, [&] { launch(freed, stream); });
  }();
  cudaGraphLaunch(graph, stream);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
  emulation::forget_failures();
  kernel_options().early_launch = false;
  const Ints values(kBlocks * kThreads);
  launch<Bug::one_thread_returns>(values, stream);
  check(cudaStreamSynchronize(stream));
}

TEST_CASE("a GPU before sm_90 has no early launches") {
  const Capability old(80);
  const Rank rank;
  const Stream stream;
  const Ints values(kBlocks * kThreads);
  launch<Bug::reads_early>(values, stream);
  check(cudaStreamSynchronize(stream));
}

}  // namespace
}  // namespace tessera::test
