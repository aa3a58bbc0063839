#include "kernels/linear/op.h"

#include "kernels/add/op.h"
#include "kernels/bias/op.h"
#include "kernels/checks.h"
#include "kernels/gelu/op.h"
#include "kernels/matmul/op.h"
#include "kernels/swiglu/op.h"

namespace tessera {
namespace {

/// [I, O] as weight is stored.
Shape weight_shape(std::int64_t inputs, std::int64_t outputs, Transpose transpose) {
  return transpose == Transpose::no ? Shape{inputs, outputs} : Shape{outputs, inputs};
}

/// A layer's tensors that are not gradients of parameters, under their names in the signature.
struct Layer {
  Argument output, input, weight;  // [N, O], [N, I]
  Transpose transpose;
};

void check_layer(std::string_view op, const Layer& layer) {
  const auto& [output, input, weight, transpose] = layer;
  check_on_one_device(op, {output, input, weight});
  check_same_floating(op, {output, input, weight});
  check_rank(op, input, 2);
  check_rank(op, output, 2);
  check_shape(op, weight, weight_shape(input.tensor.size(1), output.tensor.size(1), transpose));
  check_shape(op, output, {input.tensor.size(0), output.tensor.size(1)});
}

void check_bias(std::string_view op, const Argument& output, const Tensor& bias) {
  if (!bias.defined()) return;
  check_on_one_device(op, {output, {"bias", bias}});
  check_same_dtype(op, {"bias", bias}, output);
  check_shape(op, {"bias", bias}, {output.tensor.size(1)});
  check_apart(op, output, {"bias", bias});
}

void check_residual(std::string_view op, const Argument& output, const Tensor& residual) {
  if (!residual.defined()) return;
  const Argument argument{"residual", residual};
  check_alike(op, {argument, output});
  check_apart(op, output, argument);
}

}  // namespace

void linear_forward(Out y, const Tensor& x, const Tensor& weight, Transpose transpose_weight,
                    const Tensor& bias, const Tensor& residual) {
  constexpr std::string_view op = "linear_forward";
  check_layer(op, {{"y", y}, {"x", x}, {"weight", weight}, transpose_weight});
  check_bias(op, {"y", y}, bias);
  check_residual(op, {"y", y}, residual);
  check_apart(op, {"y", y}, {"x", x});
  check_apart(op, {"y", y}, {"weight", weight});
  const auto run = [&] {
    if (y.device().is_cpu())
      return cpu::linear_forward(y, x, weight, transpose_weight, bias, residual);
    if constexpr (kHasCuda) {
      if (cuda::linear_forward(y, x, weight, transpose_weight, bias, residual)) return;
    }
    matmul(y, x, weight, Transpose::no, transpose_weight);
    if (bias.defined()) bias_forward(y, bias);
    if (residual.defined()) add(y, y, residual);
  };
  run_observed(op, run, y, x, weight, bias, residual);
}

void linear_gelu_forward(Out y, Out pre, const Tensor& x, const Tensor& weight,
                         Transpose transpose_weight, const Tensor& bias, GeluForm form) {
  constexpr std::string_view op = "linear_gelu_forward";
  check_layer(op, {{"y", y}, {"x", x}, {"weight", weight}, transpose_weight});
  check_alike(op, {{"pre", pre}, {"y", y}});
  check_apart(op, {"y", y}, {"pre", pre});
  for (const Argument& output : {Argument{"y", y}, Argument{"pre", pre}}) {
    check_bias(op, output, bias);
    check_apart(op, output, {"x", x});
    check_apart(op, output, {"weight", weight});
  }
  const auto run = [&] {
    if (y.device().is_cpu()) {
      return cpu::linear_gelu_forward(y, pre, x, weight, transpose_weight, bias, form);
    }
    if constexpr (kHasCuda) {
      if (form == GeluForm::tanh &&
          cuda::linear_gelu_forward(y, pre, x, weight, transpose_weight, bias)) {
        return;
      }
    }
    linear_forward(pre, x, weight, transpose_weight, bias);
    gelu_forward(y, pre, form);
  };
  run_observed(op, run, y, pre, x, weight, bias);
}

void linear_swiglu_forward(Out y, Out gate_up, const Tensor& x, const Tensor& weight,
                           Transpose transpose_weight, const Tensor& bias, Gate activation) {
  constexpr std::string_view op = "linear_swiglu_forward";
  check_layer(op, {{"gate_up", gate_up}, {"x", x}, {"weight", weight}, transpose_weight});
  check_gate_up(op, {"gate_up", gate_up}, {"y", y});
  check_bias(op, {"gate_up", gate_up}, bias);
  for (const Argument& output : {Argument{"y", y}, Argument{"gate_up", gate_up}}) {
    check_apart(op, output, {"x", x});
    check_apart(op, output, {"weight", weight});
    if (bias.defined()) check_apart(op, output, {"bias", bias});
  }
  const auto run = [&] {
    if (y.device().is_cpu()) {
      return cpu::linear_swiglu_forward(y, gate_up, x, weight, transpose_weight, bias, activation);
    }
    if constexpr (kHasCuda) {
      if (activation == Gate::silu &&
          cuda::linear_swiglu_forward(y, gate_up, x, weight, transpose_weight, bias)) {
        return;
      }
    }
    linear_forward(gate_up, x, weight, transpose_weight, bias);
    swiglu_forward(y, first_half(gate_up), second_half(gate_up), activation);
  };
  run_observed(op, run, y, gate_up, x, weight, bias);
}

void linear_backward_input(Out dx, const Tensor& dy, const Tensor& weight,
                           Transpose transpose_weight, const Tensor& pre, GeluForm form,
                           Tensor* row_sums) {
  constexpr std::string_view op = "linear_backward_input";
  if (row_sums != nullptr) *row_sums = {};
  check_layer(op, {{"dy", dy}, {"dx", dx}, {"weight", weight}, transpose_weight});
  check_apart(op, {"dx", dx}, {"dy", dy});
  check_apart(op, {"dx", dx}, {"weight", weight});
  if (pre.defined()) {
    check_alike(op, {{"pre", pre}, {"dx", dx}});
    check_apart(op, {"dx", dx}, {"pre", pre});
  }
  const auto run = [&] {
    if (dx.device().is_cpu()) {
      return cpu::linear_backward_input(dx, dy, weight, transpose_weight, pre, form);
    }
    if constexpr (kHasCuda) {
      if (form == GeluForm::tanh &&
          cuda::linear_backward_input(dx, dy, weight, transpose_weight, pre, row_sums)) {
        return;
      }
    }
    matmul(dx, dy, weight, Transpose::no, opposite(transpose_weight));
    if (pre.defined()) gelu_backward(dx, dx, pre, form);
  };
  run_observed(op, run, dx, dy, weight, pre);
}

void swiglu_linear_backward_input(Out dgate_up, Out dx, const Tensor& dy, const Tensor& weight,
                                  Transpose transpose_weight, const Tensor& gate_up,
                                  Gate activation) {
  constexpr std::string_view op = "swiglu_linear_backward_input";
  check_layer(op, {{"dy", dy}, {"dx", dx}, {"weight", weight}, transpose_weight});
  check_apart(op, {"dx", dx}, {"dy", dy});
  check_apart(op, {"dx", dx}, {"weight", weight});
  for (const Argument& packed : {Argument{"dgate_up", dgate_up}, Argument{"gate_up", gate_up}}) {
    check_gate_up(op, packed, {"dx", dx});
  }
  check_same_or_apart(op, {"dgate_up", dgate_up}, {"gate_up", gate_up});
  check_apart(op, {"dgate_up", dgate_up}, {"dy", dy});
  check_apart(op, {"dgate_up", dgate_up}, {"weight", weight});
  const auto run = [&] {
    if (dx.device().is_cpu()) {
      return cpu::swiglu_linear_backward_input(dgate_up, dx, dy, weight, transpose_weight, gate_up,
                                               activation);
    }
    if constexpr (kHasCuda) {
      if (activation == Gate::silu &&
          cuda::swiglu_linear_backward_input(dgate_up, dy, weight, transpose_weight, gate_up)) {
        return;
      }
    }
    linear_backward_input(dx, dy, weight, transpose_weight);
    swiglu_backward(first_half(dgate_up), second_half(dgate_up), dx, first_half(gate_up),
                    second_half(gate_up), activation);
  };
  run_observed(op, run, dgate_up, dy, weight, gate_up);
}

void linear_backward_weight(Out dweight, Out dbias, const Tensor& x, const Tensor& dy,
                            Transpose transpose_weight, Accumulate accumulate_dweight,
                            Accumulate accumulate_dbias) {
  constexpr std::string_view op = "linear_backward_weight";
  check_on_one_device(op, {{"dweight", dweight}, {"x", x}, {"dy", dy}});
  check_same_floating(op, {{"x", x}, {"dy", dy}});
  check_rank(op, {"x", x}, 2);
  check_rank(op, {"dy", dy}, 2);
  check_shape(op, {"dy", dy}, {x.size(0), dy.size(1)});
  check_same_dtype_or_f32(op, {"dweight", dweight}, {"x", x});
  check_shape(op, {"dweight", dweight}, weight_shape(x.size(1), dy.size(1), transpose_weight));
  check_apart(op, {"dweight", dweight}, {"x", x});
  check_apart(op, {"dweight", dweight}, {"dy", dy});
  if (dbias.defined()) {
    check_on_one_device(op, {{"dweight", dweight}, {"dbias", dbias}});
    check_same_dtype_or_f32(op, {"dbias", dbias}, {"dy", dy});
    check_shape(op, {"dbias", dbias}, {dy.size(1)});
    check_apart(op, {"dbias", dbias}, {"dy", dy});
    check_apart(op, {"dbias", dbias}, {"x", x});
    check_apart(op, {"dbias", dbias}, {"dweight", dweight});
  }
  const auto run = [&] {
    if (dweight.device().is_cpu()) {
      return cpu::linear_backward_weight(dweight, dbias, x, dy, transpose_weight,
                                         accumulate_dweight, accumulate_dbias);
    }
    if (dbias.defined()) bias_backward(dbias, dy, accumulate_dbias);
    const bool as_stored = transpose_weight == Transpose::no;
    matmul(dweight, as_stored ? x : dy, as_stored ? dy : x, Transpose::yes, Transpose::no,
           accumulate_dweight);
  };
  run_observed(op, run, dweight, dbias, x, dy);
}

}  // namespace tessera
