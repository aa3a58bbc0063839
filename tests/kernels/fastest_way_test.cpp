// The choice among ways to do the same work, with an injected clock.
#include <catch2/catch.hpp>
#include <vector>

#include "kernels/matmul/fastest_way.h"

namespace tessera {
namespace {

/// A GPU. Its clock falls by a way's share once it has been busy for 0.3 seconds.
struct HotGpu {
  struct Way {
    double cold_s, hot_s;
  };
  std::vector<Way> ways;
  std::vector<double> busy = std::vector<double>(ways.size());

  double seconds_of(std::size_t way, std::int64_t n) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double one = busy[way] + sum < 0.3 ? ways[way].cold_s : ways[way].hot_s;
      sum += one;
    }
    busy[way] += sum;
    return sum;
  }
};

std::size_t chosen(HotGpu& gpu) {
  return fastest_way(gpu.ways.size(),
                     [&](std::size_t way, std::int64_t n) { return gpu.seconds_of(way, n); });
}

}  // namespace

TEST_CASE("the way with the best sustained rate is chosen, not the fastest on a cold GPU") {
  HotGpu gpu{{{1.0e-3, 1.5e-3}, {1.2e-3, 1.3e-3}, {1.1e-3, 1.4e-3}}};
  CHECK(chosen(gpu) == 1);
  for (const double seconds : gpu.busy) {
    CHECK(seconds > 0.9);
    CHECK(seconds < 1.6);
  }
}

TEST_CASE("work that takes longer than a second is done four times by each way") {
  HotGpu gpu{{{7200.0, 7200.0}, {3600.0, 3600.0}, {3600.0, 3600.0}}};
  CHECK(chosen(gpu) == 1);
  CHECK(gpu.busy[0] == 4 * 7200.0);
  HotGpu one{{{2.0, 2.0}}};
  CHECK(chosen(one) == 0);
}

TEST_CASE("work without a measurable time does not run for ever") {
  std::int64_t runs = 0;
  const auto no_time = [&](std::size_t, std::int64_t n) {
    runs += n;
    return 0.0;
  };
  CHECK(fastest_way(2, no_time) == 0);
  CHECK(runs == 2 * (2 + 2 * 500'000));
}

}  // namespace tessera
