// OpenBLAS's products under a limit on the address space. No other one may precede these:
// OpenBLAS keeps the buffers that it has mapped.
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "kernels/matmul/op.h"
#include "kernels/matmul/openblas_library.h"
#include "kernels/matmul/options.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "tests/support/child.h"

namespace tessera {
namespace {

constexpr rlim_t kMiB = rlim_t{1} << 20;

/// Leaves room for `bytes` more of address space.
void limit_address_space(rlim_t bytes) {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t bound = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit limit{bound, bound};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::perror("setrlimit");
}

/// A product on the CPU with contexts of two threads each, all alive at once.
void multiply_in(std::vector<std::unique_ptr<RankContext>>& ranks) {
  for (const auto& rank : ranks) {
    const ContextGuard guard(*rank);
    matmul_options().library = MatmulLibrary::openblas;
    const Tensor a = Tensor::full({256, 256}, DType::f32, 1.0);
    const Tensor c = Tensor::empty({256, 256}, DType::f32);
    matmul(c, a, a);
    if (c.to_vector<float>() != std::vector<float>(256 * 256, 256.0f)) std::puts("wrong product");
  }
}

/// The output of a process that multiplies with `count` contexts and has room for `bytes`.
std::string output_of(int count, int threads, rlim_t bytes) {
  const test::Child child = test::run_child([=] {
    alarm(60);  // a hang ends as a failure
    std::vector<std::unique_ptr<RankContext>> ranks;
    for (int i = 0; i < count; ++i) {
      ranks.push_back(std::make_unique<RankContext>(
          ContextOptions{.device = {DeviceType::cpu, 0}, .threads = threads}));
    }
    cpu::openblas();
    limit_address_space(bytes);
    try {
      multiply_in(ranks);
      std::puts("done");
    } catch (const Error& error) {
      std::puts(error.what());
    }
    std::fflush(stdout);
    std::_Exit(0);
  });
  return child.output;
}

}  // namespace

TEST_CASE("a product that OpenBLAS has no address space for is an error, not a hang", "[cpu]") {
  using Catch::Contains;
  constexpr int threads = 4;
  const rlim_t for_one = 128 * kMiB * static_cast<rlim_t>(threads);
  const std::string one_rank = std::to_string(threads) + " in all, and only ";
  const std::string two_ranks = std::to_string(2 * threads) + " in all, and only ";
  CHECK_THAT(output_of(1, threads, 40 * kMiB),
             Contains("OpenBLAS needs a buffer of 128 MiB of address space per thread, " +
                      one_rank + "0 fit; raise the memory limit (ulimit -v)"));
  CHECK_THAT(output_of(1, threads, for_one + 100 * kMiB), Contains("done"));
  CHECK_THAT(output_of(2, threads, 2 * for_one + 100 * kMiB), Contains("done"));
  CHECK_THAT(output_of(1, threads, 200 * kMiB), Contains(one_rank));
  CHECK_THAT(output_of(2, threads, for_one + 100 * kMiB), Contains(two_ranks));
}

}  // namespace tessera
