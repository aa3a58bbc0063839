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

/// Offloaded gradients, beside a GPU.
bool lie_on_host(const std::vector<Tensor>& gradients) {
  return !gradients.empty() && gradients.front().device().is_cpu() && !context().device().is_cpu();
}

}  // namespace

GradientNorm gradient_norm(const std::vector<Tensor>& gradients, Communicator* group) {
  const CategoryScope category(Category::workspace);
  const GradientNorm norm = GradientNorm::empty();
  const bool on_host = lie_on_host(gradients);
  // Where the gradients are; what the ranks reduce is on the device in any case.
  const GradientNorm here = on_host ? GradientNorm::empty_on_host() : norm;
  const auto bring = [&](const Tensor& to, const Tensor& from) {
    if (!on_host) return;
    to.copy_from(from);
    context().compute_stream().synchronize();
  };
  if (on_host) context().compute_stream().synchronize();  // the gradients have arrived
  largest_magnitude(here, gradients);
  bring(norm.largest(), here.largest());
  reduce_over(group, norm.largest(), Reduction::maximum);
  bring(here.largest(), norm.largest());
  sum_of_squares(here, gradients);
  bring(norm.words(), here.words());
  reduce_over(group, norm.words(), Reduction::sum);
  return norm;
}

}  // namespace tessera
