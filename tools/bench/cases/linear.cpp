// The products of the feed-forward's first layer, x [N, C] W^T with W [F, C].
//
// They run plain, and with every epilogue of a linear layer.
#include <fmt/format.h>

#include "kernels/linear/op.h"
#include "kernels/matmul/op.h"
#include "kernels/matmul/options.h"
#include "kernels/nf4/op.h"
#include "kernels/swiglu/op.h"
#include "tools/bench/cases/cases.h"
#include "tools/measure/noise.h"

namespace tessera {
namespace {

struct Operands {
  Tensor x, y, pre, weight, bias, dweight, dbias;
};

/// Gate and up as one product with SwiGLU, against the product and then SwiGLU.
void add_gated_layer(CaseList& list) {
  const std::int64_t N = list.rows, C = list.model.width, F = list.model.mlp_width;
  struct Operands {
    Tensor y, gate_up, x, weight;
  };
  const auto make = [=, dtype = list.dtype] {
    return Operands{.y = Tensor::empty({N, F}, dtype),
                    .gate_up = Tensor::empty({N, 2 * F}, dtype),
                    .x = noise({N, C}, dtype),
                    .weight = noise({2 * F, C}, dtype)};
  };
  const MatmulShape product = {.m = N, .n = 2 * F, .k = C, .transpose_b = Transpose::yes};
  list.compute_bound(
      "linear_swiglu", fmt::format("{} x 2*{} x {}", N, F, C),
      list.bytes(N, C) + list.bytes(2 * F, C) + list.bytes(N, 3 * F), 1.0, {product},
      [=] {
        return [t = make()] {
          linear_swiglu_forward(t.y, t.gate_up, t.x, t.weight, Transpose::yes, {});
        };
      },
      Baseline::apart,
      [=] {
        return [t = make()] {
          matmul(t.gate_up, t.x, t.weight, Transpose::no, Transpose::yes);
          swiglu_forward(t.y, first_half(t.gate_up), second_half(t.gate_up));
        };
      });
}

/// The second layer's backward pass through its product and SwiGLU before it, against one after the other.
void add_gradient_of_gated_layer(CaseList& list) {
  const std::int64_t N = list.rows, C = list.model.width, F = list.model.mlp_width;
  struct Operands {
    Tensor dgate_up, dx, dy, weight, gate_up;
  };
  const auto make = [=, dtype = list.dtype] {
    return Operands{.dgate_up = Tensor::empty({N, 2 * F}, dtype),
                    .dx = Tensor::empty({N, F}, dtype),
                    .dy = noise({N, C}, dtype),
                    .weight = noise({C, F}, dtype),
                    .gate_up = noise({N, 2 * F}, dtype)};
  };
  const MatmulShape product = {.m = N, .n = F, .k = C};
  list.compute_bound(
      "linear_dx_swiglu", fmt::format("{} x {} x {}", N, F, C),
      list.bytes(N, C) + list.bytes(F, C) + list.bytes(N, 4 * F), 1.0, {product},
      [=] {
        return [t = make()] {
          swiglu_linear_backward_input(t.dgate_up, t.dx, t.dy, t.weight, Transpose::yes, t.gate_up);
        };
      },
      Baseline::apart,
      [=] {
        return [t = make()] {
          matmul(t.dx, t.dy, t.weight);
          swiglu_backward(first_half(t.dgate_up), second_half(t.dgate_up), t.dx,
                          first_half(t.gate_up), second_half(t.gate_up));
        };
      });
}

/// The first layer's weight from its packed rows.
void add_unpacking(CaseList& list) {
  const std::int64_t C = list.model.width, F = list.model.mlp_width;
  const Shape packed = nf4_packed_shape({F, C});
  const double bytes = list.bytes(F, C) + static_cast<double>(packed.numel());
  list.memory_bound("nf4_unpack", fmt::format("{} x {}", F, C), bytes, [=, dtype = list.dtype] {
    return [y = Tensor::empty({F, C}, dtype), x = Tensor::zeros(packed, DType::u8)] {
      nf4_unpack(y, x);
    };
  });
}

}  // namespace

void add_linear_cases(CaseList& list) {
  const std::int64_t N = list.rows, C = list.model.width, F = list.model.mlp_width;
  const DType dtype = list.dtype;
  const double wide = list.bytes(N, F);
  const double operands = list.bytes(N, C) + wide + list.bytes(F, C);
  const std::string shape = fmt::format("{} x {} x {}", N, F, C);
  const auto make = [=](DType gradients) {
    return Operands{.x = noise({N, C}, dtype),
                    .y = noise({N, F}, dtype),
                    .pre = noise({N, F}, dtype),
                    .weight = noise({F, C}, dtype),
                    .bias = noise({F}, dtype),
                    .dweight = Tensor::zeros({F, C}, gradients),
                    .dbias = Tensor::zeros({F}, gradients)};
  };
  const MatmulShape forward = {.m = N, .n = F, .k = C, .transpose_b = Transpose::yes};
  const MatmulShape input = {.m = N, .n = C, .k = F};
  const MatmulShape weight = {.m = F, .n = C, .k = N, .transpose_a = Transpose::yes};
  const auto add = [&](const char* op, double bytes, const MatmulShape& product, DType gradients,
                       const std::function<void(const Operands&)>& call) {
    list.compute_bound(op, shape, bytes, 1.0, {product},
                       [=] { return [t = make(gradients), call] { call(t); }; });
  };

  add("matmul_forward", operands, forward, dtype,
      [](const Operands& t) { matmul(t.y, t.x, t.weight, Transpose::no, Transpose::yes); });
  add("matmul_dx", operands, input, dtype, [](const Operands& t) { matmul(t.x, t.y, t.weight); });
  add("matmul_dweight", operands, weight, dtype,
      [](const Operands& t) { matmul(t.dweight, t.y, t.x, Transpose::yes); });
  // Training accumulates into f32, which is read and written.
  add("matmul_dweight_accumulate", list.bytes(N, C) + wide + 2 * CaseList::bytes(F, C, DType::f32),
      weight, DType::f32, [](const Operands& t) {
        matmul(t.dweight, t.y, t.x, Transpose::yes, Transpose::no, Accumulate::yes);
      });
  add("linear_bias", operands, forward, dtype,
      [](const Operands& t) { linear_forward(t.y, t.x, t.weight, Transpose::yes, t.bias); });
  for (const GeluChoice choice : {GeluChoice::library, GeluChoice::own}) {
    add(choice == GeluChoice::library ? "linear_bias_gelu" : "linear_bias_gelu_own",
        operands + wide, forward, dtype, [choice](const Operands& t) {
          matmul_options().gelu = choice;
          linear_gelu_forward(t.y, t.pre, t.x, t.weight, Transpose::yes, t.bias);
        });
  }
  add_gated_layer(list);
  add_unpacking(list);
  add("linear_dweight_dbias", operands, weight, dtype, [](const Operands& t) {
    linear_backward_weight(t.dweight, t.dbias, t.x, t.y, Transpose::yes, Accumulate::no,
                           Accumulate::no);
  });
  // The second layer's backward pass: through its product and the gelu before it.
  const MatmulShape second = {.m = N, .n = F, .k = C};
  for (const GeluChoice choice : {GeluChoice::library, GeluChoice::own}) {
    const bool own = choice == GeluChoice::own;
    list.compute_bound(
        own ? "linear_dx_gelu_own" : "linear_dx_gelu", shape, operands + wide, 1.0, {second}, [=] {
          return [choice, own, dy = noise({N, C}, dtype), weight = noise({C, F}, dtype),
                  pre = noise({N, F}, dtype), dpre = Tensor::empty({N, F}, dtype)] {
            matmul_options().gelu = choice;
            Tensor sums;
            linear_backward_input(dpre, dy, weight, Transpose::yes, pre, GeluForm::tanh,
                                  own ? &sums : nullptr);
          };
        });
  }
  add_gradient_of_gated_layer(list);
}

}  // namespace tessera
