#include "sharding/strategy/gradient_norm.h"

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

/// Whether the gradients are offloaded from a GPU.
bool lie_on_host(const std::vector<Tensor>& gradients) {
  return !gradients.empty() && gradients.front().device().is_cpu() && !context().device().is_cpu();
}

}  // namespace

GradientNorm gradient_norm(const std::vector<Tensor>& gradients, Communicator* group) {
  const CategoryScope category(Category::workspace);
  const GradientNorm norm = GradientNorm::empty();
  const bool on_host = lie_on_host(gradients);
  // On the side of the gradients; the ranks reduce on the device in any case.
  const GradientNorm here = on_host ? GradientNorm::empty_on_host() : norm;
  const auto copy_if_on_host = [&](const Tensor& to, const Tensor& from) {
    if (!on_host) return;
    to.copy_from(from);
    context().compute_stream().synchronize();
  };
  if (on_host) context().compute_stream().synchronize();  // the gradients have arrived
  largest_magnitude(here, gradients);
  copy_if_on_host(norm.largest(), here.largest());
  reduce_over(group, norm.largest(), Reduction::maximum);
  copy_if_on_host(here.largest(), norm.largest());
  sum_of_squares(here, gradients);
  copy_if_on_host(norm.words(), here.words());
  reduce_over(group, norm.words(), Reduction::sum);
  return norm;
}

}  // namespace tessera
