// Random numbers of device code, called on the host. In builds for GPUs only nvcc can compile it.
#include "kernels/cuda/philox.h"

#include <catch2/catch.hpp>

namespace tessera {

TEST_CASE("device code draws the host's random words, at large indices too") {
  for (const RandomStream& stream :
       {RandomStream(5, "dropout"), RandomStream(std::uint64_t{1} << 63, 3)}) {
    for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1} << 32,
                                      (std::uint64_t{5} << 60) + 17, ~std::uint64_t{0}}) {
      const gpu::RandomWords device(stream);
      const uint4 ten = device.block(index), seven = device.block<7>(index);
      REQUIRE(PhiloxCounter{ten.x, ten.y, ten.z, ten.w} == stream.block(index));
      REQUIRE(PhiloxCounter{seven.x, seven.y, seven.z, seven.w} == stream.block<7>(index));
    }
  }
}

}  // namespace tessera
