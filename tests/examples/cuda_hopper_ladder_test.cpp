// The rungs of the ladder of products on Hopper are right under every schedule.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>

#include "examples/kernel_ladder/hopper/rungs.h"
#include "kernels/cuda/device_attributes.h"
#include "tests/examples/host_results.h"
#include "tests/support/schedules.h"

namespace tessera::kernel_ladder {
namespace {

using Sizes = std::array<std::int64_t, 3>;  // M, N, K

/// The product by a rung, whose error is as small as its roundings explain.
std::vector<float> product_by(const Rung<Product<bfloat16>>& rung, const Sizes& sizes) {
  const Operands operands(sizes[0], sizes[1], sizes[2], DType::bf16);
  rung.run(operands.product<bfloat16>());
  test::HostProduct<bfloat16> results(operands);
  CHECK(largest_error(results.problem()) <= static_cast<double>(sizes[2]));
  // A rung that draws tiles leaves the counter as it was.
  operands.c.zero();
  rung.run(operands.product<bfloat16>());
  CHECK(operands.c.to_vector<float>() == results.c);
  return results.c;
}

}  // namespace

TEST_CASE("every rung of the ladder of products on Hopper has one set of bits") {
  // One row; less than a tile; whole tiles, and more steps than a ring has stages; an odd number of tiles down,
  // and a depth that ends within a step.
  constexpr Sizes kShapes[] = {{1, 8, 8}, {70, 136, 72}, {128, 256, 320}, {300, 520, 200}};
  for (const Sizes& sizes : kShapes) {
    std::vector<float> first;
    for (const auto& rung : hopper::kRungs) {
      INFO(fmt::format("{}: [{}, {}] x [{}, {}]", rung.name, sizes[0], sizes[2], sizes[2],
                       sizes[1]));
      test::for_every_schedule([&] {
        if (!gpu::has_hopper()) return;
        const std::vector<float> c = product_by(rung, sizes);
        if (first.empty()) first = c;
        CHECK(c == first);
      });
    }
  }
}

TEST_CASE("the rungs that draw tiles compute all tiles of several bands") {
  const test::Rank rank;
  if (!gpu::has_hopper()) return;
  for (const auto& rung : hopper::kRungs) {
    INFO(rung.name);
    product_by(rung, {2200, 264, 8});
  }
}

}  // namespace tessera::kernel_ladder
