#include "autograd/expert_parts.h"

#include <vector>

#include "autograd/activations.h"
#include "autograd/leaf_sum.h"
#include "kernels/cast/op.h"
#include "kernels/dispatch/op.h"
#include "kernels/tree_reduce/op.h"

namespace tessera {

void combine_parts(Out sums, std::int64_t parts, const RowsOfPart& rows, const Tensor& places,
                   const Tensor& weights) {
  const Tensor factors = weights.defined() ? widened(weights) : weights;
  LeafSum sum(sums, Accumulate::no, parts);
  for (std::int64_t part = 0; part < parts; ++part) {
    combine(sum.next(), rows(part), places, factors);
    sum.added();
  }
}

void weigh_parts(Out dx, Out dweights, std::int64_t parts, const RowsOfPart& rows, const Tensor& x,
                 const Tensor& places, const Tensor& weights) {
  const Tensor factors = widened(weights);
  const Tensor dispatched = activation({places.numel(), x.size(1)}, dx.dtype());
  dispatch(dispatched, widened(x), places);
  LeafSum of_x(dx, Accumulate::no, parts), of_weights(dweights, Accumulate::no, parts);
  for (std::int64_t part = 0; part < parts; ++part) {
    const Tensor drows = rows(part);
    weigh_backward(drows, of_weights.next(), drows, dispatched, places, factors);
    combine(of_x.next(), drows, places);
    of_x.added();
    of_weights.added();
  }
}

Tensor sum_of_parts(const Tensor& x) {
  const Shape shape = {x.size(1), x.size(2)};
  std::vector<Tensor> parts;
  for (std::int64_t part = 0; part < x.size(0); ++part) {
    parts.push_back(x.slice(part, part + 1).reshape(shape));
  }
  const Tensor sum = activation(shape, x.dtype());
  tree_reduce(sum, parts, Reduction::sum);
  return sum;
}

}  // namespace tessera
