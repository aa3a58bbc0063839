// Operations on every element alone, and reshape.
#include "autograd/operations.h"

#include <algorithm>

#include "autograd/activations.h"
#include "autograd/context_axis.h"
#include "autograd/engine.h"
#include "kernels/gelu/op.h"
#include "kernels/swiglu/op.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/step_values.h"

namespace tessera {

Variable gelu(const Variable& x, GeluForm form) {
  const Tensor y = like(x.data());
  gelu_forward(y, x.data(), form);
  return differentiable(y, {x}, false, [x = x.data(), form](Tensor dy) -> Gradients {
    const Tensor dx = reuse(dy);
    gelu_backward(dx, dy, x, form);
    return {dx};
  });
}

Variable swiglu(const Variable& gate, const Variable& up) {
  const Tensor y = like(gate.data());
  swiglu_forward(as_rows(y), all_columns(as_rows(gate.data())), all_columns(as_rows(up.data())));
  return differentiable(
      y, {gate, up}, false, [g = gate.data(), u = up.data()](Tensor dy) -> Gradients {
        const Tensor dg = reuse(g), du = reuse(u);
        const auto columns = [](const Tensor& x) { return all_columns(as_rows(x)); };
        swiglu_backward(columns(dg), columns(du), as_rows(dy), columns(g), columns(u));
        return {dg, du};
      });
}

Variable swiglu(const Variable& gate_up, Gate gate) {
  const Tensor y = activation(gate_up.shape().with(-1, gate_up.shape()[-1] / 2), gate_up.dtype());
  const Tensor rows = as_rows(gate_up.data());
  swiglu_forward(as_rows(y), first_half(rows), second_half(rows), gate);
  return differentiable(y, {gate_up}, false, [x = gate_up.data(), gate](Tensor dy) -> Gradients {
    const Tensor dx = reuse(x), from = as_rows(x), to = as_rows(dx);
    swiglu_backward(first_half(to), second_half(to), as_rows(dy), first_half(from),
                    second_half(from), gate);
    return {dx};
  });
}

Variable add(const Variable& a, const Variable& b) {
  const Tensor y = like(a.data());
  add(y, a.data(), b.data());
  return added(y, a, b);
}

Variable scale(const Variable& x, double factor) {
  const Tensor y = like(x.data());
  scale(y, x.data(), factor);
  return differentiable(y, {x}, false, [factor](Tensor dy) -> Gradients {
    const Tensor dx = reuse(dy);
    scale(dx, dy, factor);
    return {dx};
  });
}

Variable cast(const Variable& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor y = activation(x.shape(), dtype);
  cast(y, x.data());
  return differentiable(y, {x}, false, [from = x.dtype()](Tensor dy) -> Gradients {
    const Tensor dx = activation(dy.shape(), from);
    cast(dx, dy);
    return {dx};
  });
}

Variable reshape(const Variable& x, const Shape& shape) {
  return differentiable(x.data().reshape(shape), {x}, false,
                        [from = x.shape()](Tensor dy) -> Gradients { return {dy.reshape(from)}; });
}

namespace {

/// dropout of x, which begins at element `first` of this rank's tokens; these are pieces of rows if there
/// is an axis.
void drop(const Tensor& y, const Tensor& x, float probability, const RandomStream& random,
          std::int64_t first, const ContextAxis* axis) {
  if (axis == nullptr) return dropout(y, x, probability, random, first);
  const std::int64_t channels = x.shape()[-1], in_piece = axis->piece_tokens();
  check(
      in_piece * channels % 4 == 0,
      "dropout: a row's piece has {} elements; with context parallelism this must be a multiple of "
      "4. Take a longer data.sequence_length, or set model.dropout=0",
      in_piece * channels);
  const Tensor to = as_rows(y), from = as_rows(x);
  for (std::int64_t row = 0; row < from.size(0);) {
    const std::int64_t token = first / channels + row;
    const std::int64_t end = std::min(from.size(0), row + in_piece - token % in_piece);
    dropout(to.slice(row, end), from.slice(row, end), probability, random,
            axis->place_of_token(token) * channels);
    row = end;
  }
}

}  // namespace

Variable dropout(Variable x, float probability, const RandomStream& random, std::int64_t first) {
  if (probability == 0.0f) return x;
  const Tensor y = like(x.data());
  const std::shared_ptr<const ContextAxis> axis = context_axis();
  drop(y, x.data(), probability, random, first, axis.get());
  return differentiable(y, {x}, false, [=](Tensor dy) -> Gradients {
    const Tensor dx = reuse(dy);
    drop(dx, dy, probability, random, first, axis.get());
    return {dx};
  });
}

Variable dropout_at(Variable x, float probability, const std::string& site, std::int64_t first) {
  const RandomPosition& at = context().random();
  const RandomStream random(at.seed, site, at.step, at.micro_batch);
  return dropout(std::move(x), probability,
                 stream_of_step(random,
                                [at, site](const StepNumbers& numbers) {
                                  return RandomStream(at.seed, site, numbers.step, at.micro_batch);
                                }),
                 first);
}

}  // namespace tessera
