#include "sharding/strategy/gradient_norm.h"

#include "kernels/tree_reduce/op.h"
#include "runtime/category.h"
#include "runtime/context.h"
#include "runtime/dry_gpu.h"
#include "sharding/comm/stream.h"

namespace tessera {
namespace {

double bytes_of(const Tensors& tensors) {
  double bytes = 0.0;
  for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

/// Adds the part that is due to tensors in host memory. They may be on both sides, as offloading is a
/// setting of each placement.
void add_host_part(const Tensor& words, const Tensors& tensors) {
  if (tensors.empty()) return;
  context().compute_stream().synchronize();  // gradients have arrived
  log_work(host_memory_work(bytes_of(tensors)));
  const GradientNorm host = GradientNorm::empty_on_host();
  sum_of_squares(host, tensors);
  const Tensor part = Tensor::empty(words.shape(), words.dtype());
  part.copy_from(host.words());
  tree_reduce(words, std::vector{words, part}, Reduction::sum);
}

}  // namespace

void own_sum_of_squares(const GradientNorm& norm, const Tensors& tensors) {
  const CategoryScope category(Category::workspace);
  const Device device = context().device();
  Tensors on_device, on_host;
  for (const Tensor& tensor : tensors) {
    (tensor.device() == device ? on_device : on_host).push_back(tensor);
  }
  log_memory(bytes_of(on_device));
  sum_of_squares(norm, on_device);
  add_host_part(norm.words(), on_host);
}

GradientNorm gradient_norm(const std::vector<Tensor>& gradients, Communicator* group) {
  const CategoryScope category(Category::workspace);
  const GradientNorm norm = GradientNorm::empty();
  own_sum_of_squares(norm, gradients);
  if (group == nullptr) return norm;
  const Stream& stream = communication_stream();
  stream.wait(context().compute_stream().record());
  wait_for_communication(
      group->all_reduce({norm.words()}, stream, "gradient norm", Reduction::sum));
  return norm;
}

}  // namespace tessera
