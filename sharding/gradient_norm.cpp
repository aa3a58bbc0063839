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

bool lie_on_host(const std::vector<Tensor>& gradients) {
  return !gradients.empty() && gradients.front().device().is_cpu() && !context().device().is_cpu();
}

/// Offloaded gradients are read by the CPU, and what the ranks sum meets on the GPU.
void measure_on_host(const GradientNorm& norm, const std::vector<Tensor>& gradients,
                     Communicator* group) {
  const GradientNorm here = GradientNorm::empty_on_host();
  const Stream& stream = context().compute_stream();
  stream.synchronize();  // gradients have arrived
  largest_magnitude(here, gradients);
  norm.largest().copy_from(here.largest());
  reduce_over(group, norm.largest(), Reduction::maximum);
  here.largest().copy_from(norm.largest());
  stream.synchronize();
  sum_of_squares(here, gradients);
  norm.words().copy_from(here.words());
  reduce_over(group, norm.words(), Reduction::sum);
  stream.synchronize();  // `here` goes away
}

}  // namespace

GradientNorm gradient_norm(const std::vector<Tensor>& gradients, Communicator* group) {
  const CategoryScope category(Category::workspace);
  const GradientNorm norm = GradientNorm::empty();
  if (lie_on_host(gradients)) {
    measure_on_host(norm, gradients, group);
  } else {
    largest_magnitude(norm, gradients);
    reduce_over(group, norm.largest(), Reduction::maximum);
    sum_of_squares(norm, gradients);
    reduce_over(group, norm.words(), Reduction::sum);
  }
  return norm;
}

}  // namespace tessera
