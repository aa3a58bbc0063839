#include "autograd/operations/adapter.h"

#include <utility>
#include <vector>

#include "autograd/activations.h"
#include "autograd/operations.h"
#include "autograd/operations/linear_gradients.h"
#include "kernels/columns/op.h"
#include "kernels/linear/op.h"

namespace tessera {
namespace {

/// A factor B, and the columns of the result that it adds to.
struct Addend {
  Parameter b;
  std::int64_t first = 0;

  std::int64_t outputs() const { return b.shape()[0]; }
  std::int64_t rank() const { return b.shape()[1]; }
};

Tensor copy_of(const Columns& columns) {
  const Tensor copy = activation({columns.tensor.size(0), columns.count}, columns.tensor.dtype());
  copy_columns(copy, columns);
  return copy;
}

/// Columns of x [N, C]: x itself if they are all.
Tensor columns_of(const Tensor& x, std::int64_t first, std::int64_t count) {
  return count == x.size(1) ? x : copy_of({x, first, count});
}

/// y + (u B^T at its columns) for every B: u [N, sum of ranks] has their inputs side by side.
Variable add_products(Variable y, const Variable& u, std::vector<Addend> addends) {
  const bool in_place = y.is_last();
  const Tensor inputs = as_rows(u.data()), before = as_rows(y.data());
  const bool whole = addends.size() == 1 && addends[0].outputs() == before.size(1);
  const Tensor sum = whole ? like(before) : in_place ? before : copy_of(all_columns(before));
  std::int64_t first = 0;
  for (const Addend& addend : addends) {
    const Tensor x = columns_of(inputs, first, addend.rank());
    const Tensor own = columns_of(before, addend.first, addend.outputs());
    const Tensor with = whole ? sum : like(own);
    linear_forward(with, x, addend.b.data(), Transpose::yes, {}, own);
    if (!whole) set_columns({sum, addend.first, addend.outputs()}, with);
    first += addend.rank();
  }
  const Shape shape = y.shape(), input_shape = u.shape();
  return differentiable(
      sum.reshape(shape), {std::move(y), u}, true,
      [addends = std::move(addends), inputs, input_shape](const Tensor& dy) -> Gradients {
        const Tensor gradients = as_rows(dy), du = like(inputs);
        std::int64_t first = 0;
        for (const Addend& addend : addends) {
          const Tensor x = columns_of(inputs, first, addend.rank());
          const Tensor own = columns_of(gradients, addend.first, addend.outputs());
          const bool all = addend.rank() == du.size(1);
          const Tensor dx = all ? du : like(x);
          linear_backward_input(dx, own, addend.b.data(), Transpose::yes);
          if (!all) set_columns({du, first, addend.rank()}, dx);
          accumulate_gradients(addend.b, Parameter(), x, own, Transpose::yes);
          first += addend.rank();
        }
        return {dy, du.reshape(input_shape)};
      });
}

}  // namespace

Variable with_adapters(Variable y, const Variable& x, const JoinedParameters& weight) {
  if (!is_adapted(weight)) return y;
  std::vector<Parameter> factors;
  std::vector<Addend> addends;
  const Parameter* adapted = nullptr;
  std::int64_t column = 0;
  for (const Parameter& part : weight.parts()) {
    if (const Adapter* const adapter = part.adapter().get()) {
      factors.push_back(adapter->a);
      addends.push_back({adapter->b, column});
      if (adapted == nullptr) adapted = &part;
    }
    column += part.held_shape()[0];  // joined weights are [out, in]; one alone has all columns
  }
  const Adapter& first = *adapted->adapter();
  const bool drops = AdapterTraining::acts() && first.dropout > 0.0f;
  const Variable input = drops ? dropout_at(x, first.dropout, adapted->name()) : x;
  const Variable u = linear(input, JoinedParameters(std::move(factors)), Parameter());
  return add_products(std::move(y), first.scaling == 1.0 ? u : scale(u, first.scaling),
                      std::move(addends));
}

}  // namespace tessera
