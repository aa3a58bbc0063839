#include "kernels/swiglu/op.h"

#include "kernels/swiglu/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

struct ColumnsArgument {
  std::string_view name;
  const Columns& columns;
};

/// `argument` has as many rows and columns as `like` [N, F].
void check_columns(std::string_view op, const ColumnsArgument& argument, const Argument& like) {
  const Columns& x = argument.columns;
  check_rank(op, {argument.name, x.tensor}, 2);
  check(x.first >= 0 && x.count >= 0 && x.first + x.count <= x.tensor.size(1),
        "{}: {} is columns [{}, {}) of a tensor {}; columns must lie in the tensor", op,
        argument.name, x.first, x.first + x.count, describe(x.tensor));
  check(x.tensor.size(0) == like.tensor.size(0) && x.count == like.tensor.size(1),
        "{}: {} is {} columns of a tensor {} and {} is {}; their rows and columns must be equal",
        op, argument.name, x.count, describe(x.tensor), like.name, describe(like.tensor));
}

/// Whether both are columns of the same memory, so that the columns decide about overlap.
bool of_one_tensor(const Columns& a, const Columns& b) {
  return a.tensor.bytes() > 0 && a.tensor.raw() == b.tensor.raw() &&
         a.tensor.shape() == b.tensor.shape();
}

void check_columns_apart(std::string_view op, const ColumnsArgument& output,
                         const ColumnsArgument& other) {
  const Columns &a = output.columns, &b = other.columns;
  if (!of_one_tensor(a, b)) {
    return check_apart(op, {output.name, a.tensor}, {other.name, b.tensor});
  }
  check(
      a.first + a.count <= b.first || b.first + b.count <= a.first,
      "{}: {} is columns [{}, {}) and {} is columns [{}, {}) of one tensor; they must not overlap",
      op, output.name, a.first, a.first + a.count, other.name, b.first, b.first + b.count);
}

/// `output` is `input`, column for column, or does not overlap it.
void check_columns_same_or_apart(std::string_view op, const ColumnsArgument& output,
                                 const ColumnsArgument& input) {
  const Columns &out = output.columns, &in = input.columns;
  if (of_one_tensor(out, in) && out.first == in.first && out.count == in.count) return;
  check_columns_apart(op, output, input);
}

void check_gradients(std::string_view op, const Columns& dgate, const Columns& dup,
                     const Tensor& dy, const Columns& gate, const Columns& up) {
  check_on_one_device(op, {{"dy", dy},
                           {"dgate", dgate.tensor},
                           {"dup", dup.tensor},
                           {"gate", gate.tensor},
                           {"up", up.tensor}});
  check_same_floating(op, {{"dy", dy},
                           {"dgate", dgate.tensor},
                           {"dup", dup.tensor},
                           {"gate", gate.tensor},
                           {"up", up.tensor}});
  check_rank(op, {"dy", dy}, 2);
  for (const ColumnsArgument& x :
       {ColumnsArgument{"dgate", dgate}, {"dup", dup}, {"gate", gate}, {"up", up}}) {
    check_columns(op, x, {"dy", dy});
  }
  for (const ColumnsArgument& out : {ColumnsArgument{"dgate", dgate}, {"dup", dup}}) {
    check_apart(op, {out.name, out.columns.tensor}, {"dy", dy});
  }
  check_columns_apart(op, {"dgate", dgate}, {"dup", dup});
  check_columns_same_or_apart(op, {"dgate", dgate}, {"gate", gate});
  check_columns_same_or_apart(op, {"dgate", dgate}, {"up", up});
  check_columns_same_or_apart(op, {"dup", dup}, {"gate", gate});
  check_columns_same_or_apart(op, {"dup", dup}, {"up", up});
}

/// dweights is [N, k] as the weights, or has the sums over S equal parts of the columns.
void check_weights_gradient(std::string_view op, const Tensor& dweights, const Tensor& weights,
                            std::int64_t columns) {
  if (dweights.rank() != 3) {
    check_same_floating(op, {{"weights", weights}, {"dweights", dweights}});
    return check_same_shape(op, {"dweights", dweights}, {"weights", weights});
  }
  const std::int64_t parts = dweights.size(0);
  check_dtype(op, {"dweights", dweights}, statistics_dtype(weights.dtype()));
  check_shape(op, {"dweights", dweights}, {parts, weights.size(0), weights.size(1)});
  check(parts >= 1 && columns % parts == 0, "{}: dweights is {}; {} columns have no {} equal parts",
        op, describe(dweights), columns, parts);
}

}  // namespace

void check_row_weights(std::string_view op, const Argument& y, const Tensor& dweights,
                       const Tensor& places, const Tensor& weights) {
  check(weights.defined() == places.defined() && weights.defined() == dweights.defined(),
        "{}: weights, their places and dweights go together; define all of them or none", op);
  if (!weights.defined()) return;
  check_on_one_device(op, {y, {"places", places}, {"weights", weights}, {"dweights", dweights}});
  check_dtype(op, {"places", places}, DType::i32);
  check_rank(op, {"places", places}, 2);
  check(y.tensor.size(0) == places.numel(),
        "{}: {} is {} and places is {}; they must be [N k, F] and [N, k]", op, y.name,
        describe(y.tensor), describe(places));
  check_same_floating(op, {y, {"weights", weights}});
  check_same_shape(op, {"weights", weights}, {"places", places});
  check_weights_gradient(op, dweights, weights, y.tensor.size(1));
  check_apart(op, {"dweights", dweights}, {"weights", weights});
  check_apart(op, {"dweights", dweights}, y);
  check_apart(op, y, {"weights", weights});
}

void swiglu_forward(Out y, const Columns& gate, const Columns& up, Gate activation) {
  constexpr std::string_view op = "swiglu_forward";
  check_on_one_device(op, {{"y", y}, {"gate", gate.tensor}, {"up", up.tensor}});
  check_same_floating(op, {{"y", y}, {"gate", gate.tensor}, {"up", up.tensor}});
  check_rank(op, {"y", y}, 2);
  check_columns(op, {"gate", gate}, {"y", y});
  check_columns(op, {"up", up}, {"y", y});
  check_apart(op, {"y", y}, {"gate", gate.tensor});
  check_apart(op, {"y", y}, {"up", up.tensor});
  run_on<cpu::swiglu_forward, cuda::swiglu_forward>(y.device(), op, y, gate, up, activation);
}

void swiglu_backward(const Columns& dgate, const Columns& dup, const Tensor& dy,
                     const Columns& gate, const Columns& up, Gate activation) {
  constexpr std::string_view op = "swiglu_backward";
  check_gradients(op, dgate, dup, dy, gate, up);
  run_on<cpu::swiglu_backward, cuda::swiglu_backward>(dy.device(), op, dgate, dup, dy, gate, up,
                                                      activation);
}

void weighed_swiglu_backward(Out y, Out dweights, const Columns& dgate, const Columns& dup,
                             const Tensor& dy, const Columns& gate, const Columns& up,
                             const Tensor& places, const Tensor& weights) {
  constexpr std::string_view op = "weighed_swiglu_backward";
  check_gradients(op, dgate, dup, dy, gate, up);
  check_on_one_device(op, {{"y", y}, {"dy", dy}});
  check_same_floating(op, {{"y", y}, {"dy", dy}});
  check_same_shape(op, {"y", y}, {"dy", dy});
  check_same_or_apart(op, {"y", y}, {"dy", dy});
  for (const ColumnsArgument& x :
       {ColumnsArgument{"dgate", dgate}, {"dup", dup}, {"gate", gate}, {"up", up}}) {
    check_apart(op, {"y", y}, {x.name, x.columns.tensor});
  }
  check_row_weights(op, {"y", y}, dweights, places, weights);
  if (weights.defined()) check_apart(op, {"dweights", dweights}, {"dy", dy});
  run_on<cpu::weighed_swiglu_backward, cuda::weighed_swiglu_backward>(
      y.device(), op, y, dweights, dgate, dup, dy, gate, up, places, weights);
}

}  // namespace tessera
