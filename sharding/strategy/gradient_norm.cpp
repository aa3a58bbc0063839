#include "sharding/strategy/gradient_norm.h"

#include <cmath>

#include "runtime/category.h"
#include "runtime/context.h"
#include "runtime/dry_gpu.h"
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

double bytes_of(const Tensors& tensors) {
  double bytes = 0.0;
  for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

/// The part of a norm that is due to gradients in host memory. Gradients may be on both sides, as
/// offloading is a setting of each placement. The ranks reduce on the device in any case.
class HostPart {
 public:
  explicit HostPart(Tensors gradients)
      : gradients_(std::move(gradients)), bytes_(bytes_of(gradients_)) {
    if (gradients_.empty()) return;
    context().compute_stream().synchronize();  // the gradients have arrived
    norm_ = GradientNorm::empty_on_host();
  }

  void add_largest(const Tensor& largest) const {
    if (gradients_.empty()) return;
    log_work(host_memory_work(bytes_));
    largest_magnitude(norm_, gradients_);
    const float host = norm_.largest().item<float>();
    const float device = largest.item<float>();
    // NaN must win, and it compares as false.
    if (device >= host || std::isnan(device)) return;
    largest.copy_from(norm_.largest());
  }

  /// `largest` is that of all ranks.
  void add_squares(const Tensor& largest, const Tensor& words) const {
    if (gradients_.empty()) return;
    norm_.largest().copy_from(largest);
    context().compute_stream().synchronize();
    log_work(host_memory_work(bytes_));
    sum_of_squares(norm_, gradients_);
    const Tensor device = words.to_host();
    for (int i = 0; i < 2; ++i) {
      norm_.words().data<std::int64_t>()[i] += device.data<std::int64_t>()[i];
    }
    words.copy_from(norm_.words());
    context().compute_stream().synchronize();
  }

 private:
  const Tensors gradients_;
  const double bytes_;
  GradientNorm norm_;
};

}  // namespace

GradientNorm gradient_norm(const std::vector<Tensor>& gradients, Communicator* group) {
  const CategoryScope category(Category::workspace);
  const Device device = context().device();
  Tensors on_device, on_host;
  for (const Tensor& gradient : gradients) {
    (gradient.device() == device ? on_device : on_host).push_back(gradient);
  }
  const HostPart host(std::move(on_host));
  const GradientNorm norm = GradientNorm::empty();
  const double bytes = bytes_of(on_device);
  log_memory(bytes);
  largest_magnitude(norm, on_device);
  host.add_largest(norm.largest());
  reduce_over(group, norm.largest(), Reduction::maximum);
  log_memory(bytes);
  sum_of_squares(norm, on_device);
  host.add_squares(norm.largest(), norm.words());
  reduce_over(group, norm.words(), Reduction::sum);
  return norm;
}

}  // namespace tessera
