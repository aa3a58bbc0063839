// Launches through a stream of the emulated device, under the limits of several architectures.
#include <catch2/catch.hpp>
#include <string>

#include "kernels/cuda/language.h"
#include "kernels/cuda/launch.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;

constexpr std::size_t kKibibyte = 1024;

/// 256 bytes of static shared memory, and all of the dynamic.
__global__ void touch_all(int* out, std::size_t dynamic_bytes) {
  TESSERA_SHARED(int, declared, [64]);
  gpu::SharedMemory memory;
  auto* carved = memory.take<unsigned char>(dynamic_bytes);
  declared[threadIdx.x] = 1;
  for (std::size_t i = threadIdx.x; i < dynamic_bytes; i += 64) carved[i] = 1;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int sum = 0;
  for (int i = 0; i < 64; ++i) sum += declared[i];
  for (std::size_t i = 0; i < dynamic_bytes; ++i) sum += carved[i];
  *out = sum;
}

/// The sum of all ones that the kernel left in its shared memory.
int sum_of(std::size_t dynamic_bytes) {
  const Tensor out = Tensor::zeros({1}, DType::i32);
  gpu::launch(touch_all, dim3(1), dim3(64), dynamic_bytes, gpu::stream(), out.data<std::int32_t>(),
              dynamic_bytes);
  return out.item<std::int32_t>();
}

emulation::DeviceOptions device_of(int capability) {
  emulation::DeviceOptions options = emulation::device_options();
  options.capability = capability;
  return options;
}

}  // namespace

// The default limit is 48 KiB of both together. cross_entropy comes to the sizes between at
// vocabularies of about 24,500.
TEST_CASE("a kernel is launched with dynamic shared memory about 48 KiB minus its static part") {
  const test::Rank rank;
  for (const std::size_t dynamic : {48 * kKibibyte - 257, 48 * kKibibyte - 256,
                                    48 * kKibibyte - 255, 48 * kKibibyte, 48 * kKibibyte + 1}) {
    REQUIRE(sum_of(dynamic) == static_cast<int>(64 + dynamic));
  }
  REQUIRE(sum_of(16) == 64 + 16);  // less than it was allowed before
}

TEST_CASE("a rank that needs little shared memory does not take it from another rank") {
  const test::Rank large;
  const std::size_t bytes = 60 * kKibibyte;
  REQUIRE(sum_of(bytes) == static_cast<int>(64 + bytes));
  {
    const test::Rank small;
    REQUIRE(sum_of(16) == 64 + 16);
  }
  REQUIRE(sum_of(bytes) == static_cast<int>(64 + bytes));
}

TEST_CASE("a launch is refused where the architecture has too little shared memory") {
  for (const auto& [capability, kibibytes] : {std::pair(80, 163), {89, 99}, {90, 227}}) {
    const emulation::DeviceOptionsGuard device(device_of(capability));
    const test::Rank rank;
    const std::size_t most = kibibytes * kKibibyte - 256;
    REQUIRE(sum_of(most) == static_cast<int>(64 + most));
    REQUIRE_THROWS_WITH(sum_of(kibibytes * kKibibyte + 1), Contains("cudaFuncSetAttribute"));
  }
}

TEST_CASE("a launch is refused if a parameter points into the host's stack") {
  const test::Rank rank;
  int local = 0;
  REQUIRE_THROWS_WITH(gpu::launch(touch_all, dim3(1), dim3(64), 0, gpu::stream(), &local, 0),
                      Contains("parameter 1 of the kernel"));
}

}  // namespace tessera
