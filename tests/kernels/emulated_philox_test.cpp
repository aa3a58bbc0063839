// Random numbers of device code, called on the host. In builds for GPUs only nvcc can compile it.
#include "kernels/cuda/philox.h"

#include <catch2/catch.hpp>

namespace tessera {

TEST_CASE("device code draws the host's random words, at large indices too") {
  for (const RandomStream& stream :
       {RandomStream(5, "dropout"), RandomStream(std::uint64_t{1} << 63, 3)}) {
    for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1} << 32,
                                      (std::uint64_t{5} << 60) + 17, ~std::uint64_t{0}}) {
      const uint4 words = gpu::RandomWords(stream).block(index);
      REQUIRE(PhiloxCounter{words.x, words.y, words.z, words.w} == stream.block(index));
    }
  }
}

}  // namespace tessera
