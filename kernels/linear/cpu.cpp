#include <optional>

#include "kernels/add/parts.h"
#include "kernels/bias/op.h"
#include "kernels/bias/parts.h"
#include "kernels/cpu/parallel.h"
#include "kernels/gelu/parts.h"
#include "kernels/linear/op.h"
#include "kernels/matmul/cpu/steps.h"
#include "kernels/swiglu/parts.h"

namespace tessera::cpu {

static_assert(kDepthsOfStep % BiasGradient::kRowsPerPartial == 0);

void linear_forward(Out y, const Tensor& x, const Tensor& weight, Transpose transpose_weight,
                    const Tensor& bias, const Tensor& residual) {
  ProductSteps steps;
  if (bias.defined() || residual.defined()) {
    steps.finished = [&, isa = loop_isa()](const Rectangle& part) {
      if (bias.defined()) bias_forward(isa, part, y, bias);
      if (residual.defined()) add_to(isa, part, y, residual);
    };
  }
  cpu::matmul(y, x, weight, Transpose::no, transpose_weight, Accumulate::no, steps);
}

void linear_gelu_forward(Out y, Out pre, const Tensor& x, const Tensor& weight,
                         Transpose transpose_weight, const Tensor& bias, GeluForm form) {
  const auto finished = [&, isa = loop_isa()](const Rectangle& part) {
    if (bias.defined()) bias_forward(isa, part, pre, bias);
    gelu_forward(isa, part, y, pre, form);
  };
  cpu::matmul(pre, x, weight, Transpose::no, transpose_weight, Accumulate::no,
              {.finished = finished});
}

void linear_swiglu_forward(Out y, Out gate_up, const Tensor& x, const Tensor& weight,
                           Transpose transpose_weight, const Tensor& bias, Gate activation) {
  const auto finished = [gate = first_half(gate_up), up = second_half(gate_up), &y, &gate_up, &bias,
                         activation, isa = loop_isa()](const Rectangle& part) {
    for (const Columns* half : {&gate, &up}) {
      if (!bias.defined()) break;
      const Rectangle there = {part.row, part.rows, half->first + part.column, part.columns};
      bias_forward(isa, there, gate_up, bias);
    }
    swiglu_forward(isa, part, y, gate, up, activation);
  };
  cpu::matmul(gate_up, x, weight, Transpose::no, transpose_weight, Accumulate::no,
              {.finished = finished, .sections = 2});
}

void linear_backward_input(Out dx, const Tensor& dy, const Tensor& weight,
                           Transpose transpose_weight, const Tensor& pre, GeluForm form) {
  ProductSteps steps;
  if (pre.defined()) {
    steps.finished = [&, isa = loop_isa()](const Rectangle& part) {
      gelu_backward(isa, part, dx, dx, pre, form);
    };
  }
  cpu::matmul(dx, dy, weight, Transpose::no, opposite(transpose_weight), Accumulate::no, steps);
}

void swiglu_linear_backward_input(Out dgate_up, Out dx, const Tensor& dy, const Tensor& weight,
                                  Transpose transpose_weight, const Tensor& gate_up,
                                  Gate activation) {
  const auto finished = [dgate = first_half(dgate_up), dup = second_half(dgate_up), &dx,
                         gate = first_half(gate_up), up = second_half(gate_up), activation,
                         isa = loop_isa()](const Rectangle& part) {
    swiglu_backward(isa, part, dgate, dup, dx, gate, up, activation);
  };
  cpu::matmul(dx, dy, weight, Transpose::no, opposite(transpose_weight), Accumulate::no,
              {.finished = finished});
}

void linear_backward_weight(Out dweight, Out dbias, const Tensor& x, const Tensor& dy,
                            Transpose transpose_weight, Accumulate accumulate_dweight,
                            Accumulate accumulate_dbias) {
  const bool as_stored = transpose_weight == Transpose::no;
  // Without elements the product reads no part of dy.
  const bool together = dbias.defined() && dweight.numel() > 0 && dy.numel() > 0;
  if (dbias.defined() && !together) cpu::bias_backward(dbias, dy, accumulate_dbias);
  std::optional<BiasGradient> sums;
  ProductSteps steps;
  if (together) {
    sums.emplace(dbias, dy, accumulate_dbias);
    (as_stored ? steps.reads_b : steps.reads_a) = [&, isa = loop_isa()](const Rectangle& part) {
      sums->add(isa, part);
    };
  }
  cpu::matmul(dweight, as_stored ? x : dy, as_stored ? dy : x, Transpose::yes, Transpose::no,
              accumulate_dweight, steps);
}

}  // namespace tessera::cpu
