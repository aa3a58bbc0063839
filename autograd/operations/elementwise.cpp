// Operations on every element alone, and reshape.
#include "autograd/operations.h"

#include <algorithm>

#include "autograd/activations.h"
#include "autograd/context_axis.h"
#include "autograd/engine.h"
#include "kernels/gelu/op.h"
#include "kernels/swiglu/op.h"
#include "runtime/check.h"

namespace tessera {

Variable gelu(const Variable& x) {
  const Tensor y = like(x.data());
  gelu_forward(y, x.data());
  return differentiable(y, {x}, false, [x = x.data()](Tensor dy) -> Gradients {
    const Tensor dx = reuse(dy);
    gelu_backward(dx, dy, x);
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

Variable swiglu(const Variable& gate_up) {
  const Tensor y = activation(gate_up.shape().with(-1, gate_up.shape()[-1] / 2), gate_up.dtype());
  const Tensor rows = as_rows(gate_up.data());
  swiglu_forward(as_rows(y), first_half(rows), second_half(rows));
  return differentiable(y, {gate_up}, false, [x = gate_up.data()](Tensor dy) -> Gradients {
    const Tensor dx = reuse(x), from = as_rows(x), to = as_rows(dx);
    swiglu_backward(first_half(to), second_half(to), as_rows(dy), first_half(from),
                    second_half(from));
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

/// dropout of rows x [n, C] of a pass. An element has the mask of its place in the whole rows [B, T, C].
void drop(const Tensor& y, const Tensor& x, float probability, const RandomStream& random,
          const PassRows& rows, const ContextAxis* axis) {
  const std::int64_t channels = x.size(-1);
  if (axis == nullptr) return dropout(y, x, probability, random, rows.first * channels);
  const TokenCut& cut = axis->cut();
  const std::int64_t tokens = rows.tokens, batch = rows.batch / cut.pieces();
  check(tokens * channels % 4 == 0,
        "dropout: a row's piece has {} elements; with context parallelism this must be a multiple "
        "of 4. Take a longer data.sequence_length, or set model.dropout=0",
        tokens * channels);
  const std::int64_t end = rows.first + x.size(0);
  for (std::int64_t row = rows.first; row < end;) {
    const std::int64_t piece = row / tokens, last = std::min(end, (piece + 1) * tokens);
    const std::int64_t place = piece % batch * cut.pieces_of_row() + cut.place_of(piece / batch);
    const auto part = [&](const Tensor& t) { return t.slice(row - rows.first, last - rows.first); };
    dropout(part(y), part(x), probability, random, (place * tokens + row % tokens) * channels);
    row = last;
  }
}

}  // namespace

Variable dropout(Variable x, float probability, const RandomStream& random, PassRows rows) {
  if (probability == 0.0f) return x;
  const Tensor y = like(x.data());
  const std::shared_ptr<const ContextAxis> axis = context_axis();
  if (rows.batch == 0) rows = {.batch = x.shape()[0], .tokens = x.shape()[1]};
  drop(as_rows(y), as_rows(x.data()), probability, random, rows, axis.get());
  return differentiable(y, {x}, false, [=](Tensor dy) -> Gradients {
    const Tensor dx = reuse(dy);
    drop(as_rows(dx), as_rows(dy), probability, random, rows, axis.get());
    return {dx};
  });
}

}  // namespace tessera
