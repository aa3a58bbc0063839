#include "sharding/gradient_norm.h"

#include "runtime/category.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"

namespace tessera {
namespace {

/// The reduction of `value` over the group, in place.
void reduce_over(Communicator* group, const Tensor& value, Reduction reduction) {
  if (group == nullptr) return;
  const Stream& stream = communication_stream();
  stream.wait(context().compute_stream().record());
  wait_for_communication(group->all_reduce({value}, stream, "gradient norm", reduction));
}

}  // namespace

GradientNorm gradient_norm(const std::vector<Tensor>& gradients, Communicator* group) {
  const CategoryScope category(Category::workspace);
  const GradientNorm norm = GradientNorm::empty();
  largest_magnitude(norm, gradients);
  reduce_over(group, norm.largest(), Reduction::maximum);
  sum_of_squares(norm, gradients);
  reduce_over(group, norm.words(), Reduction::sum);
  return norm;
}

}  // namespace tessera
