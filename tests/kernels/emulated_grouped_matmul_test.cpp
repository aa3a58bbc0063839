// The choice of the kernels of grouped products, which only the emulator shows.
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "kernels/dispatch/op.h"
#include "kernels/grouped_matmul/gathered.h"
#include "kernels/linear/op.h"
#include "kernels/matmul/options.h"
#include "kernels/swiglu/op.h"
#include "runtime/emulation/device/emulator.h"
#include "tests/kernels/product_reference.h"
#include "tests/support/emulated_capability.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Launches = std::map<std::string, std::uint64_t>;

/// The launches of grouped products by f(), by the kernels' names without those of their templates.
/// swiglu's kernels are "forward" and "backward".
Launches launches_of(const std::function<Tensor()>& f) {
  Launches found;
  const auto count = [&](int sign) {
    for (const emulation::KernelUse& use : emulation::kernel_uses()) {
      for (const char* name :
           {"grouped_hopper", "tensor_core", "general", "forward", "backward", "dispatch"}) {
        if (use.kernel.find(std::string(name) + "_kernel") == std::string::npos) continue;
        found[name] += sign > 0 ? use.launches : ~use.launches + 1;
      }
    }
  };
  count(-1);
  test::to_doubles(f());  // launches run when the host waits for their results
  count(+1);
  std::erase_if(found, [](const auto& use) { return use.second == 0; });
  return found;
}

/// The launches of both grouped operations with weights [2, in, out] on a GPU of this compute
/// capability.
Launches launches(int capability, std::int64_t in, std::int64_t out, DType dtype) {
  const test::Capability gpu(capability);
  const test::Rank rank;
  const Tensor x = test::normal_tensor({5, in}, dtype, "x"),
               w = test::normal_tensor({2, in, out}, dtype, "w");
  const Tensor y = Tensor::empty({5, out}, dtype), dw = Tensor::empty({2, in, out}, dtype);
  const Tensor offsets = Tensor::from(std::vector<std::int32_t>{0, 2, 5}, {3});
  return launches_of([&] {
    grouped_matmul(y, x, w, offsets);
    grouped_matmul_weight(dw, x, y, offsets);
    return dw;
  });
}

/// The launches of a gated layer [in, 2 out], of experts or dense.
Launches swiglu_launches(int capability, std::int64_t in, std::int64_t out, DType dtype,
                         bool dense) {
  const test::Capability gpu(capability);
  const test::Rank rank;
  const Tensor x = test::normal_tensor({5, in}, dtype, "x"),
               w = test::normal_tensor({1, in, 2 * out}, dtype, "w");
  const Tensor y = Tensor::empty({5, out}, dtype), gate_up = Tensor::empty({5, 2 * out}, dtype);
  const Tensor offsets = Tensor::from(std::vector<std::int32_t>{0, 5}, {2});
  return launches_of([&] {
    if (dense) {
      linear_swiglu_forward(y, gate_up, x, w.reshape({in, 2 * out}), Transpose::no, {});
    } else {
      grouped_matmul_swiglu(y, gate_up, x, w, offsets);
    }
    return y;
  });
}

/// A layer's gradient [P, in] of silu(gate) * up, and the tensors of both ways to those of gate and up.
struct GradientOfSwiglu {
  std::int64_t P, out, in;
  DType dtype;
  Transpose stored;
  Tensor dy = test::normal_tensor({P, out}, dtype, "dy");
  Tensor w =
      test::normal_tensor(stored == Transpose::yes ? Shape{out, in} : Shape{in, out}, dtype, "w");
  Tensor gate_up = test::normal_tensor({P, 2 * in}, dtype, "gate_up");

  Tensor fused(const Tensor& dgate_up) const {
    const Tensor unused = test::poisoned({P, in}, dtype);
    swiglu_linear_backward_input(dgate_up, unused, dy, w, stored, gate_up);
    return dgate_up;
  }
  /// Our own product, then swiglu's kernel.
  Tensor separate() const {
    const Tensor dh = test::poisoned({P, in}, dtype), dgate_up = test::poisoned({P, 2 * in}, dtype);
    const Tensor offsets =
        Tensor::from(std::vector<std::int32_t>{0, static_cast<std::int32_t>(P)}, {2});
    grouped_matmul(dh, dy, w.reshape({1, w.size(0), w.size(1)}), offsets, opposite(stored));
    swiglu_backward(first_half(dgate_up), second_half(dgate_up), dh, first_half(gate_up),
                    second_half(gate_up));
    return dgate_up;
  }
};

}  // namespace

TEST_CASE("grouped products of 16 bits take Hopper's instructions on a GPU of architecture 9.0") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    REQUIRE(launches(90, 16, 24, dtype) == Launches{{"grouped_hopper", 2}});
    REQUIRE(launches(80, 16, 24, dtype) == Launches{{"tensor_core", 2}});
    REQUIRE(launches(90, 16, 20, dtype) == Launches{{"general", 2}});
  }
  REQUIRE(launches(90, 16, 24, DType::f32) == Launches{{"general", 2}});
}

TEST_CASE("a gated layer of 16 bits is one launch on a GPU of architecture 9.0") {
  const Launches one = {{"grouped_hopper", 1}};
  REQUIRE(swiglu_launches(90, 16, 24, DType::bf16, /*dense=*/false) == one);
  REQUIRE(swiglu_launches(90, 16, 24, DType::f16, /*dense=*/true) == one);
  // Rows of 20 are aligned in gate_up, which has 40, and not in y.
  REQUIRE(swiglu_launches(90, 16, 20, DType::bf16, /*dense=*/false) ==
          Launches{{"grouped_hopper", 1}, {"forward", 1}});
  REQUIRE(swiglu_launches(80, 16, 24, DType::bf16, /*dense=*/false) ==
          Launches{{"tensor_core", 1}, {"forward", 1}});
  // cuBLASLt's products are none of these kernels.
  REQUIRE(swiglu_launches(80, 16, 24, DType::bf16, /*dense=*/true) == Launches{{"forward", 1}});
  REQUIRE(swiglu_launches(90, 16, 24, DType::f32, /*dense=*/true) == Launches{{"forward", 1}});
}

TEST_CASE("Hopper's products of 16-bit, aligned tokens gather their rows, others are dispatched") {
  // The three products of a gated layer, and whether it should dispatch the rows itself.
  const auto launches = [](int capability, std::int64_t in, std::int64_t out, DType dtype) {
    const test::Capability gpu(capability);
    const test::Rank rank;
    const Tensor tokens = test::normal_tensor({3, in}, dtype, "tokens"),
                 w = test::normal_tensor({2, in, 2 * out}, dtype, "w");
    const Tensor places = Tensor::empty({3, 2}, DType::i32),
                 offsets = Tensor::empty({3}, DType::i32), slots = Tensor::empty({6}, DType::i32);
    dispatch_order(places, offsets, slots,
                   Tensor::from(std::vector<std::int32_t>{0, 1, 0, 1, 0, 1}, {3, 2}));
    const RoutedRows rows(tokens, places, slots);
    const Tensor y = Tensor::empty({6, out}, dtype), c = Tensor::empty({6, 2 * out}, dtype);
    const Tensor dw = Tensor::empty({2, in, 2 * out}, dtype),
                 swapped = Tensor::empty({2, 2 * out, in}, dtype);
    const Launches found = launches_of([&] {
      grouped_matmul_swiglu(y, c, rows, w, offsets, Transpose::no);
      grouped_matmul(c, rows, w, offsets, Transpose::no);
      grouped_matmul_weight(dw, rows, Factor(c), offsets, Accumulate::no);
      grouped_matmul_weight(swapped, Factor(c), rows, offsets, Accumulate::no);
      return swapped;
    });
    return std::pair(found, gathers_rows(tokens));
  };
  const auto apart = [](const char* kernel) {
    return Launches{{kernel, 4}, {"dispatch", 4}, {"forward", 1}};
  };
  for (const DType dtype : {DType::bf16, DType::f16}) {
    CHECK(launches(90, 16, 24, dtype) == std::pair(Launches{{"grouped_hopper", 4}}, true));
    CHECK(launches(80, 16, 24, dtype) == std::pair(apart("tensor_core"), false));
    CHECK(launches(90, 20, 24, dtype) == std::pair(apart("general"), false));
  }
  CHECK(launches(90, 16, 24, DType::f32) == std::pair(apart("general"), false));
}

TEST_CASE("8-bit experts are one launch on Hopper, and are expanded on other GPUs") {
  const auto launches = [](int capability, std::int64_t in, bool gated) {
    const test::Capability gpu(capability);
    const test::Rank rank;
    const Tensor one = Tensor::full({1}, DType::f32, 1.0);
    const Factor x(Tensor::zeros({5, in}, DType::e4m3), one),
        w(Tensor::zeros({2, 48, in}, DType::e4m3), one);
    const Tensor y = Tensor::empty({5, 24}, DType::bf16), c = Tensor::empty({5, 48}, DType::bf16);
    const Tensor offsets = Tensor::from(std::vector<std::int32_t>{0, 2, 5}, {3});
    return launches_of([&] {
      if (gated) {
        grouped_matmul_swiglu(y, c, x, w, offsets, Transpose::yes);
      } else {
        grouped_matmul(c, x, w, offsets, Transpose::yes);
      }
      return c;
    });
  };
  for (const bool gated : {false, true}) {
    Launches expanded = {{"tensor_core", 1}};
    if (gated) expanded["forward"] = 1;
    CHECK(launches(90, 16, gated) == Launches{{"grouped_hopper", 1}});
    CHECK(launches(89, 16, gated) == expanded);
  }
}

TEST_CASE("a gated dense layer takes cuBLASLt's product if the rank has chosen it") {
  const test::Rank rank;
  const std::int64_t N = 2100, in = 8, out = 136;  // two bands of tiles down, two tiles across
  const Tensor x = test::normal_tensor({N, in}, DType::bf16, "x");
  const Tensor w = test::normal_tensor({2 * out, in}, DType::bf16, "w");
  const auto layer = [&](SwigluChoice choice) {
    matmul_options().swiglu = choice;
    const Tensor gate_up = test::poisoned({N, 2 * out}, DType::bf16);
    const Tensor y = test::poisoned({N, out}, DType::bf16);
    const Launches launches = launches_of([&] {
      linear_swiglu_forward(y, gate_up, x, w, Transpose::yes, {});
      return y;
    });
    return std::tuple(launches, gate_up, y);
  };
  const auto [fused, gate_up, y] = layer(SwigluChoice::epilogue);
  const auto [separate, gate_up_apart, y_apart] = layer(SwigluChoice::separate);
  REQUIRE(fused == Launches{{"grouped_hopper", 1}});
  REQUIRE(separate == Launches{{"forward", 1}});
  const auto expected = test::product_reference(x, w, Transpose::no, Transpose::yes);
  REQUIRE(test::excess(gate_up, expected) <= 1.0);
  REQUIRE(test::excess(gate_up_apart, expected) <= 1.0);
  const Tensor of_gate_up = test::poisoned({N, out}, DType::bf16);
  swiglu_forward(of_gate_up, first_half(gate_up), second_half(gate_up));
  REQUIRE(test::same_bits(y, of_gate_up));
}

TEST_CASE("SwiGLU's gradient as an epilogue has the bits of its own kernel, in place as well") {
  // Tails of rows, columns and depths; narrow and wide tiles, and several of them.
  for (const auto& [P, out, in] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 8, 8},
                                   {70, 72, 136},
                                   {130, 64, 264}}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      for (const Transpose stored : {Transpose::no, Transpose::yes}) {
        CAPTURE(P, out, in, name_of(dtype), stored == Transpose::yes);
        test::for_every_schedule([&] {
          const GradientOfSwiglu layer{P, out, in, dtype, stored};
          const Tensor expected = layer.separate();
          CHECK(test::same_bits(layer.fused(test::poisoned({P, 2 * in}, dtype)), expected));
          CHECK(test::same_bits(layer.fused(layer.gate_up), expected));
        });
      }
    }
  }
}

TEST_CASE("SwiGLU's gradient is an epilogue where SwiGLU is one, and stores no other result") {
  const auto launches = [](int capability, std::int64_t out, std::int64_t in, DType dtype) {
    const test::Capability gpu(capability);
    const test::Rank rank;
    const GradientOfSwiglu layer{5, out, in, dtype, Transpose::no};
    return launches_of([&] { return layer.fused(test::poisoned({5, 2 * in}, dtype)); });
  };
  const Launches one = {{"grouped_hopper", 1}},
                 apart = {{"backward", 1}};  // and cuBLASLt's product
  REQUIRE(launches(90, 16, 24, DType::bf16) == one);
  REQUIRE(launches(90, 16, 24, DType::f16) == one);
  REQUIRE(launches(90, 16, 24, DType::f32) == apart);
  REQUIRE(launches(90, 16, 20, DType::bf16) == apart);
  REQUIRE(launches(90, 4096, 24, DType::bf16) == apart);
  REQUIRE(launches(80, 16, 24, DType::bf16) == apart);
}

TEST_CASE("by default a gated dense layer of 4,096 channels takes cuBLASLt's product") {
  for (const auto& [channels, kernel] : {std::pair(4088, "grouped_hopper"), {4096, "forward"}}) {
    REQUIRE(swiglu_launches(90, channels, 8, DType::bf16, /*dense=*/true) == Launches{{kernel, 1}});
  }
}

}  // namespace tessera
