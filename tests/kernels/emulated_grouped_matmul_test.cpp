// The choice of the kernels of grouped products, which only the emulator shows.
#include <catch2/catch.hpp>
#include <cmath>
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
#include "tests/kernels/fp8_factor.h"
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
      for (const char* name : {"grouped_hopper", "tensor_core", "general", "forward", "backward",
                               "dispatch", "sum_tiles"}) {
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

/// The experts of tokens: none takes the first, and most of a token's slots take the last.
Tensor uneven_experts(std::int64_t tokens, std::int64_t k, std::int64_t count) {
  std::vector<std::int32_t> experts;
  for (std::int64_t slot = 0; slot < tokens * k; ++slot) {
    const std::int64_t other = 1 + slot * 7 % (count - 1);
    experts.push_back(static_cast<std::int32_t>(slot % 3 == 0 ? other : count - 1));
  }
  return Tensor::from(experts, {tokens, k});
}

/// The results of experts' gradients.
struct OfExperts {
  Tensor y, dweights, dgate_up;
};

/// Experts [F, C] of tokens with k each, and the gradient dy [N k, C] of their results.
struct Experts {
  std::int64_t tokens, k, count, C, F;
  DType dtype;
  Transpose stored;  // yes: [C, F]
  Tensor places = Tensor::empty({tokens, k}, DType::i32);
  Tensor offsets = Tensor::empty({count + 1}, DType::i32);
  Tensor slots = Tensor::empty({tokens * k}, DType::i32);
  Tensor dy = test::normal_tensor({tokens * k, C}, dtype, "dy", 0.5);
  Tensor w = test::normal_tensor(stored == Transpose::yes ? Shape{count, C, F} : Shape{count, F, C},
                                 dtype, "w", 0.5);
  Tensor gate_up = test::normal_tensor({tokens * k, 2 * F}, dtype, "gate_up");
  Tensor weights = test::normal_tensor({tokens, k}, dtype, "weights");

  Experts(std::int64_t tokens, std::int64_t k, std::int64_t count, std::int64_t C, std::int64_t F,
          DType dtype, Transpose stored)
      : tokens(tokens), k(k), count(count), C(C), F(F), dtype(dtype), stored(stored) {
    dispatch_order(places, offsets, slots, uneven_experts(tokens, k, count));
  }

  OfExperts results(bool weighed) const {
    return {test::poisoned({tokens * k, F}, dtype),
            weighed ? test::poisoned({tokens, k}, dtype) : Tensor(),
            test::poisoned({tokens * k, 2 * F}, dtype)};
  }
  OfExperts fused(bool weighed = true) const {
    const OfExperts to = results(weighed);
    grouped_matmul_swiglu_backward(to.y, to.dweights, to.dgate_up, dy, w, gate_up, offsets,
                                   weighed ? places : Tensor(), slots, weighed ? weights : Tensor(),
                                   opposite(stored));
    return to;
  }
  /// The product, which is stored.
  Tensor gradient() const {
    const Tensor d = test::poisoned({tokens * k, F}, dtype);
    grouped_matmul(d, dy, w, offsets, opposite(stored));
    return d;
  }
  OfExperts separate(bool weighed = true) const {
    const OfExperts to = results(weighed);
    weighed_swiglu_backward(to.y, to.dweights, first_half(to.dgate_up), second_half(to.dgate_up),
                            gradient(), first_half(gate_up), second_half(gate_up),
                            weighed ? places : Tensor(), weighed ? weights : Tensor());
    return to;
  }
  /// The error of dweights in units of its bound: a rounding to the dtype, and one in f32 for each term.
  double error_of(const Tensor& dweights) const {
    const Tensor rows = test::poisoned({tokens * k, F}, dtype);
    swiglu_forward(rows, first_half(gate_up), second_half(gate_up));
    const auto d = test::to_doubles(gradient()), h = test::to_doubles(rows),
               found = test::to_doubles(dweights);
    const auto order = places.to_vector<std::int32_t>();
    double worst = 0.0;
    for (std::size_t slot = 0; slot < order.size(); ++slot) {
      double sum = 0.0, magnitude = 0.0;
      for (std::int64_t f = 0; f < F; ++f) {
        const auto i = static_cast<std::size_t>(order[slot] * F + f);
        sum += d[i] * h[i];
        magnitude += std::fabs(d[i] * h[i]);
      }
      const double bound = test::unit_roundoff(dtype) * std::fabs(sum) +
                           2.0 * test::unit_roundoff(DType::f32) * magnitude * std::sqrt(F);
      const double error = std::fabs(found[slot] - sum) / bound;
      worst = error <= worst ? worst : error;  // NaN stays
    }
    return worst;
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

TEST_CASE("gradients of experts' SwiGLU as an epilogue have the bits of separate kernels") {
  // Tails of rows, columns and depths; narrow and wide tiles, and several of them; 16 tiles down for clusters of two.
  struct Sizes {
    std::int64_t tokens, k, count, C, F;
  };
  for (const auto& n : {Sizes{3, 1, 2, 8, 64}, Sizes{70, 2, 4, 72, 128}, Sizes{29, 8, 9, 64, 192},
                        Sizes{40, 2, 3, 24, 256}, Sizes{33, 3, 3, 16, 264}, Sizes{25, 2, 3, 8, 768},
                        Sizes{1050, 2, 2, 8, 72}}) {
    for (const auto& [dtype, stored] :
         {std::pair(DType::bf16, Transpose::no), {DType::f16, Transpose::yes}}) {
      CAPTURE(n.tokens, n.k, n.count, n.C, n.F, name_of(dtype));
      test::for_every_schedule([&, dtype = dtype, stored = stored] {
        const Experts layer(n.tokens, n.k, n.count, n.C, n.F, dtype, stored);
        for (const bool weighed : {true, false}) {
          const OfExperts expected = layer.separate(weighed), found = layer.fused(weighed);
          CHECK(test::same_bits(found.y, expected.y));
          CHECK(test::same_bits(found.dgate_up, expected.dgate_up));
          if (!weighed) continue;
          CHECK(layer.error_of(found.dweights) <= 1.0);
          const OfExperts again = layer.results(true);
          grouped_matmul_swiglu_backward(again.y, again.dweights, layer.gate_up, layer.dy, layer.w,
                                         layer.gate_up, layer.offsets, layer.places, layer.slots,
                                         layer.weights, opposite(stored));
          CHECK(test::same_bits(layer.gate_up, expected.dgate_up));
          CHECK(test::same_bits(again.dweights, found.dweights));
        }
      });
    }
  }
}

TEST_CASE("a weight's gradient has the same bits among other rows and experts") {
  const test::Rank rank;
  const Experts layer(90, 3, 3, 16, 768, DType::bf16, Transpose::no);
  const auto all = test::to_doubles(layer.fused().dweights);
  const auto ends = layer.offsets.to_vector<std::int32_t>();
  const auto slots = layer.slots.to_vector<std::int32_t>();
  // The last expert's rows as they are elsewhere: a row is its own slot, and the weights are in the order of rows.
  const std::int64_t begin = ends[2], end = ends[3], rows = end - begin;
  REQUIRE(rows > 128);
  std::vector<std::int32_t> places;
  std::vector<double> of_rows, expected;
  const auto weights = test::to_doubles(layer.weights);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto slot = static_cast<std::size_t>(slots[static_cast<std::size_t>(begin + row)]);
    places.push_back(static_cast<std::int32_t>(row));
    of_rows.push_back(weights[slot]);
    expected.push_back(all[slot]);
  }
  const Tensor y = test::poisoned({rows, layer.F}, layer.dtype),
               dweights = test::poisoned({rows, 1}, layer.dtype),
               dgate_up = test::poisoned({rows, 2 * layer.F}, layer.dtype);
  grouped_matmul_swiglu_backward(y, dweights, dgate_up, layer.dy.slice(begin, end),
                                 layer.w.slice(2, 3), layer.gate_up.slice(begin, end),
                                 Tensor::from(std::vector{0, static_cast<std::int32_t>(rows)}, {2}),
                                 Tensor::from(places, {rows, 1}), Tensor::from(places, {rows}),
                                 test::tensor_of(of_rows, {rows, 1}, layer.dtype), Transpose::yes);
  CHECK(test::to_doubles(dweights) == expected);
}

TEST_CASE("gradients of experts' SwiGLU are an epilogue if its rows and weights suit") {
  const auto launches = [](int capability, std::int64_t F, DType dtype, bool weighed,
                           bool with_slots = true, bool in_parts = false) {
    const test::Capability gpu(capability);
    const test::Rank rank;
    const Experts layer(9, 2, 3, 16, F, dtype, Transpose::no);
    const OfExperts to = layer.results(weighed);
    const Tensor parts = test::poisoned({2, layer.tokens, layer.k}, DType::f32);
    return launches_of([&] {
      grouped_matmul_swiglu_backward(
          to.y, in_parts ? parts : to.dweights, to.dgate_up, layer.dy, layer.w, layer.gate_up,
          layer.offsets, weighed ? layer.places : Tensor(), with_slots ? layer.slots : Tensor(),
          weighed ? layer.weights : Tensor(), Transpose::yes);
      return to.y;
    });
  };
  const Launches weighed = {{"grouped_hopper", 1}, {"sum_tiles", 1}},
                 plain = {{"grouped_hopper", 1}}, apart = {{"grouped_hopper", 1}, {"backward", 1}};
  CHECK(launches(90, 24, DType::bf16, true) == weighed);
  CHECK(launches(90, 24, DType::f16, true) == weighed);
  CHECK(launches(90, 24, DType::bf16, false) == plain);
  CHECK(launches(90, 24, DType::bf16, false, /*with_slots=*/false) == plain);
  CHECK(launches(90, 24, DType::bf16, true, /*with_slots=*/false) == apart);
  CHECK(launches(90, 24, DType::bf16, true, true, /*in_parts=*/true) == apart);
  CHECK(launches(90, 20, DType::bf16, true) == Launches{{"general", 1}, {"backward", 1}});
  CHECK(launches(90, 24, DType::f32, true) == Launches{{"general", 1}, {"backward", 1}});
  CHECK(launches(80, 24, DType::bf16, true) == Launches{{"tensor_core", 1}, {"backward", 1}});
}

TEST_CASE("gradients of 8-bit experts' SwiGLU are those of their factors in 16 bits") {
  const test::Rank rank;
  const Experts layer(20, 2, 3, 16, 40, DType::bf16, Transpose::no);
  const Factor dy = test::fp8_factor(layer.dy.shape(), DType::e5m2, "dy", 2.0),
               w = test::fp8_factor(layer.w.shape(), DType::e4m3, "w", 1.0);
  const OfExperts found = layer.results(true), expected = layer.results(true);
  const Launches used = launches_of([&] {
    grouped_matmul_swiglu_backward(found.y, found.dweights, found.dgate_up, dy, w, layer.gate_up,
                                   layer.offsets, layer.places, layer.slots, layer.weights,
                                   Transpose::yes);
    return found.y;
  });
  CHECK(used == Launches{{"grouped_hopper", 1}, {"sum_tiles", 1}});
  grouped_matmul_swiglu_backward(expected.y, expected.dweights, expected.dgate_up, expanded(dy),
                                 expanded(w), layer.gate_up, layer.offsets, layer.places,
                                 layer.slots, layer.weights, Transpose::yes);
  CHECK(test::same_bits(found.y, expected.y));
  CHECK(test::same_bits(found.dweights, expected.dweights));
  CHECK(test::same_bits(found.dgate_up, expected.dgate_up));
}

TEST_CASE("by default a gated dense layer of 4,096 channels takes cuBLASLt's product") {
  for (const auto& [channels, kernel] : {std::pair(4088, "grouped_hopper"), {4096, "forward"}}) {
    REQUIRE(swiglu_launches(90, channels, 8, DType::bf16, /*dense=*/true) == Launches{{kernel, 1}});
  }
}

}  // namespace tessera
