// The products of a mixture of experts, with matrices [F / 8, C] as Qwen3-MoE has, and skewed loads.
//
// Each token takes two experts. Expert e has about 1 / (e + 1) of the load of expert 0, as words have by
// Zipf's law. The baseline is one product with the same operations. That of a product which gathers the rows of
// tokens is the same product of rows that a kernel has dispatched before. The product with SwiGLU's gradient is
// compared with a grouped product and a kernel of its own.
#include <fmt/format.h>

#include <numeric>

#include "kernels/dispatch/op.h"
#include "kernels/grouped_matmul/gathered.h"
#include "kernels/swiglu/op.h"
#include "tools/bench/cases/cases.h"
#include "tools/measure/noise.h"

namespace tessera {
namespace {

/// The offsets of `experts` experts in `rows` rows.
Tensor skewed_offsets(std::int64_t rows, std::int64_t experts) {
  double total = 0.0, sum = 0.0;
  for (std::int64_t e = 1; e <= experts; ++e) total += 1.0 / static_cast<double>(e);
  std::vector<std::int32_t> offsets{0};
  for (std::int64_t e = 1; e <= experts; ++e) {
    sum += 1.0 / static_cast<double>(e);
    offsets.push_back(static_cast<std::int32_t>(static_cast<double>(rows) * sum / total));
  }
  offsets.back() = static_cast<std::int32_t>(rows);
  return Tensor::from(offsets, {experts + 1});
}

/// Tokens that take two of the experts each, with the loads of skewed_offsets(), and their dispatched rows.
struct Gathered {
  RoutedRows rows;
  Tensor offsets, by_expert;

  Gathered(std::int64_t tokens, std::int64_t columns, std::int64_t experts, DType dtype)
      : offsets(Tensor::empty({experts + 1}, DType::i32)),
        by_expert(Tensor::empty({2 * tokens, columns}, dtype)) {
    const auto ends = skewed_offsets(2 * tokens, experts).to_vector<std::int32_t>();
    std::vector<std::int32_t> ids;
    for (std::int64_t e = 0; e < experts; ++e) {
      ids.resize(static_cast<std::size_t>(ends[static_cast<std::size_t>(e + 1)]),
                 static_cast<std::int32_t>(e));
    }
    // Slots next to each other are of distant experts.
    std::vector<std::int32_t> of_tokens;
    for (std::int64_t token = 0; token < tokens; ++token) {
      for (const std::int64_t at : {token, tokens + token}) {
        of_tokens.push_back(ids[static_cast<std::size_t>(at)]);
      }
    }
    const Tensor places = Tensor::empty({tokens, 2}, DType::i32),
                 slots = Tensor::empty({2 * tokens}, DType::i32);
    dispatch_order(places, offsets, slots, Tensor::from(of_tokens, {tokens, 2}));
    rows = RoutedRows(noise({tokens, columns}, dtype), places, slots);
  }
};

/// The gradients of rows w silu(gate) * up, from those of the experts' results.
struct SwigluGradient {
  Tensor y, dweights, dgate_up, dy, weight, gate_up, offsets, places, slots, weights;
};

void add_swiglu_gradient(CaseList& list, std::int64_t E) {
  const std::int64_t P = 2 * list.rows, C = list.model.width, F = list.model.mlp_width / 8;
  const auto make = [=, dtype = list.dtype] {
    std::vector<std::int32_t> in_order(static_cast<std::size_t>(P));
    std::iota(in_order.begin(), in_order.end(), 0);
    return SwigluGradient{.y = Tensor::empty({P, F}, dtype),
                          .dweights = Tensor::empty({P / 2, 2}, dtype),
                          .dgate_up = Tensor::empty({P, 2 * F}, dtype),
                          .dy = noise({P, C}, dtype),
                          .weight = noise({E, C, F}, dtype),
                          .gate_up = noise({P, 2 * F}, dtype),
                          .offsets = skewed_offsets(P, E),
                          .places = Tensor::from(in_order, {P / 2, 2}),
                          .slots = Tensor::from(in_order, {P}),
                          .weights = noise({P / 2, 2}, dtype)};
  };
  const MatmulShape product = {.m = P, .n = F, .k = C};
  list.compute_bound(
      fmt::format("grouped_dx_swiglu_{}", E), fmt::format("{} x {} x {}, {} experts", P, F, C, E),
      list.bytes(P, C) + list.bytes(E * F, C) + list.bytes(P, 5 * F), 1.0, {product},
      [=] {
        return [t = make()] {
          grouped_matmul_swiglu_backward(t.y, t.dweights, t.dgate_up, t.dy, t.weight, t.gate_up,
                                         t.offsets, t.places, t.slots, t.weights);
        };
      },
      Baseline::apart,
      [=] {
        return [t = make()] {
          grouped_matmul(t.y, t.dy, t.weight, t.offsets);
          weighed_swiglu_backward(t.y, t.dweights, first_half(t.dgate_up), second_half(t.dgate_up),
                                  t.y, first_half(t.gate_up), second_half(t.gate_up), t.places,
                                  t.weights);
        };
      });
}

}  // namespace

void add_moe_cases(CaseList& list) {
  const std::int64_t P = 2 * list.rows, C = list.model.width, F = list.model.mlp_width / 8;
  const DType dtype = list.dtype;
  for (const std::int64_t E : {8, 64}) {
    const std::string shape = fmt::format("{} x {} x {}, {} experts", P, F, C, E);
    const double bytes = list.bytes(P, C) + list.bytes(P, F) + list.bytes(E * F, C);
    const MatmulShape forward = {.m = P, .n = F, .k = C, .transpose_b = Transpose::yes};
    list.compute_bound(
        fmt::format("grouped_matmul_{}", E), shape, bytes, 1.0, {forward},
        [=] {
          return [y = Tensor::empty({P, F}, dtype), x = noise({P, C}, dtype),
                  weight = noise({E, F, C}, dtype), offsets = skewed_offsets(P, E)] {
            grouped_matmul(y, x, weight, offsets, Transpose::yes);
          };
        },
        Baseline::own_matmul);
    const MatmulShape input = {.m = P, .n = C, .k = F};
    list.compute_bound(
        fmt::format("grouped_matmul_dx_{}", E), shape, bytes, 1.0, {input},
        [=] {
          return [dx = Tensor::empty({P, C}, dtype), dy = noise({P, F}, dtype),
                  weight = noise({E, F, C}, dtype),
                  offsets = skewed_offsets(P, E)] { grouped_matmul(dx, dy, weight, offsets); };
        },
        Baseline::own_matmul);
    const MatmulShape weight = {.m = F, .n = C, .k = P, .transpose_a = Transpose::yes};
    list.compute_bound(
        fmt::format("grouped_matmul_dweight_{}", E), shape, bytes, 1.0, {weight},
        [=] {
          return [dweight = Tensor::empty({E, F, C}, dtype), dy = noise({P, F}, dtype),
                  x = noise({P, C}, dtype), offsets = skewed_offsets(P, E)] {
            grouped_matmul_weight(dweight, dy, x, offsets);
          };
        },
        Baseline::own_matmul);
    list.compute_bound(
        fmt::format("grouped_gather_{}", E), shape, bytes - list.bytes(P - list.rows, C), 1.0,
        {forward},
        [=, tokens = list.rows] {
          return [y = Tensor::empty({P, F}, dtype), x = Gathered(tokens, C, E, dtype),
                  weight = noise({E, F, C}, dtype)] {
            grouped_matmul(y, x.rows, weight, x.offsets, Transpose::yes);
          };
        },
        Baseline::apart,
        [=, tokens = list.rows] {
          return [y = Tensor::empty({P, F}, dtype), x = Gathered(tokens, C, E, dtype),
                  weight = noise({E, F, C}, dtype)] {
            dispatch(x.by_expert, x.rows.values.values, x.rows.places);
            grouped_matmul(y, x.by_expert, weight, x.offsets, Transpose::yes);
          };
        });
    add_swiglu_gradient(list, E);
  }
}

}  // namespace tessera
