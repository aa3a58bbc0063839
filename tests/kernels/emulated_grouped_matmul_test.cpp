// The choice of the kernels of grouped products, which only the emulator shows.
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "kernels/grouped_matmul/op.h"
#include "runtime/emulation/device/emulator.h"
#include "tests/support/emulated_capability.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Launches = std::map<std::string, std::uint64_t>;

/// The launches of both grouped operations with weights [2, in, out] on a GPU of this compute
/// capability, by the kernels' names without those of their templates.
Launches launches(int capability, std::int64_t in, std::int64_t out, DType dtype) {
  const test::Capability gpu(capability);
  const test::Rank rank;
  Launches found;
  const auto count = [&](int sign) {
    for (const emulation::KernelUse& use : emulation::kernel_uses()) {
      for (const char* name : {"grouped_hopper", "tensor_core", "general"}) {
        if (use.kernel.find(std::string(name) + "_kernel") == std::string::npos) continue;
        found[name] += sign > 0 ? use.launches : ~use.launches + 1;
      }
    }
  };
  count(-1);
  const Tensor x = test::normal_tensor({5, in}, dtype, "x"),
               w = test::normal_tensor({2, in, out}, dtype, "w");
  const Tensor y = Tensor::empty({5, out}, dtype), dw = Tensor::empty({2, in, out}, dtype);
  const Tensor offsets = Tensor::from(std::vector<std::int32_t>{0, 2, 5}, {3});
  grouped_matmul(y, x, w, offsets);
  grouped_matmul_weight(dw, x, y, offsets);
  test::to_doubles(dw);  // launches run when the host waits for their results
  count(+1);
  std::erase_if(found, [](const auto& use) { return use.second == 0; });
  return found;
}

}  // namespace

TEST_CASE("grouped products of 16 bits take Hopper's instructions on a GPU of architecture 9.0") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    REQUIRE(launches(90, 16, 24, dtype) == Launches{{"grouped_hopper", 2}});
    REQUIRE(launches(80, 16, 24, dtype) == Launches{{"tensor_core", 2}});
    REQUIRE(launches(90, 16, 20, dtype) == Launches{{"general", 2}});
  }
  REQUIRE(launches(90, 16, 24, DType::f32) == Launches{{"general", 2}});
}

}  // namespace tessera
