#include "optim/optimizer.h"

#include <set>
#include <string_view>
#include <utility>

#include "kernels/cast/op.h"
#include "runtime/capture.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/describe.h"
#include "runtime/dry_gpu.h"

namespace tessera {
namespace {

/// The CPU updates shards in host memory, even on a GPU's rank.
bool lies_on_host(const ParameterShard& shard) {
  return shard.data.device() == Device{};
}

bool is_of(const ParameterShard& shard, int unit) {
  return unit == kEveryUnit || shard.unit == unit;
}

/// An update reads and writes the parameters and the state, and reads the gradients. Writes to a dry
/// run's log how many bytes these are in the memory of the rank's device and in the host's.
void log_update(const Optimizer& optimizer, int unit) {
  double on_device = 0.0, on_host = 0.0;
  const auto add = [&](const Tensor& tensor, double times) {
    if (!tensor.defined()) return;
    double& bytes = tensor.device() == context().device() ? on_device : on_host;
    bytes += times * static_cast<double>(tensor.bytes());
  };
  std::set<std::string_view> names;
  for (const ParameterShard& shard : optimizer.shards()) {
    if (!is_of(shard, unit)) continue;
    names.insert(shard.name);
    add(shard.data, 2.0);
    add(shard.copy, 1.0);
    add(shard.gradient, 1.0);
  }
  for (const auto& [name, tensor] : optimizer.state()) {
    if (names.contains(std::string_view(name).substr(0, name.rfind('.')))) add(tensor, 2.0);
  }
  if (on_device > 0.0) log_memory(on_device);
  if (on_host > 0.0) log_work(host_memory_work(on_host));
}

}  // namespace

Optimizer::Optimizer(std::vector<ParameterShard> shards, bool takes_bf16)
    : shards_(std::move(shards)) {
  for (const ParameterShard& shard : shards_) {
    const DType dtype = shard.data.defined() ? shard.data.dtype() : DType::u8;
    check(dtype == DType::f32 || (takes_bf16 && dtype == DType::bf16),
          "optimizer: the data of {} is {}; it must be f32{}", shard.name, describe(shard.data),
          takes_bf16 ? " or bf16" : "");
  }
}

void Optimizer::check_gradients() const {
  for (const ParameterShard& shard : shards_) {
    if (shard.data.numel() == 0) continue;  // it may lack a gradient
    check(shard.gradient.defined(), "optimizer: {} has no gradient; run backward first",
          shard.name);
    check(shard.gradient.numel() == shard.data.numel(),
          "optimizer: {} is {} and its gradient is {}; their element counts must be equal",
          shard.name, describe(shard.data), describe(shard.gradient));
  }
}

void Optimizer::step(double learning_rate, const GradientScale& gradient_scale) {
  start_step();
  update_unit(kEveryUnit, learning_rate, gradient_scale);
}

void Optimizer::start_step() {
  check_gradients();
  number_ = ++steps_;
  may_have_been_skipped_ = true;
  if (is_capturing()) {
    before_every_launch([this, counted = true]() mutable {
      if (std::exchange(counted, false)) return;
      ++steps_;
      may_have_been_skipped_ = true;
    });
  }
}

void Optimizer::update_unit(int unit, double learning_rate, const GradientScale& gradient_scale) {
  std::vector<std::size_t> on_device, on_host;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].data.numel() == 0 || !is_of(shards_[i], unit)) continue;
    (lies_on_host(shards_[i]) ? on_host : on_device).push_back(i);
  }
  if (context().is_dry()) log_update(*this, unit);
  // A rank without elements makes the call, too: it may be a collective.
  if (!on_device.empty() || on_host.empty()) update(on_device, learning_rate, gradient_scale);
  if (on_host.empty()) return;
  // On a GPU's rank, copies of the gradients and of the scale may still be under way. Only a whole update
  // has shards in both memories.
  if (unit == kEveryUnit) current_stream().synchronize();
  GradientScale scale = gradient_scale;
  if (scale.tensor.defined()) scale.tensor = scale.tensor.to_host();
  update(on_host, learning_rate, scale);
}

void Optimizer::step_was_skipped() {
  check(may_have_been_skipped_,
        "optimizer: a skipped step is reported, but there was no step since the last report");
  may_have_been_skipped_ = false;
  --steps_;
}

void Optimizer::set_steps(std::int64_t steps) {
  check(steps >= 0, "optimizer: the number of updates is {}; expected at least 0", steps);
  steps_ = steps;
  may_have_been_skipped_ = false;
}

void Optimizer::write_copies(const std::vector<Copied>& all) {
  std::vector<Tensor> copies, masters;
  for (const auto& [copy, master, rounding] : all) {
    if (!copy.defined()) continue;
    if (is_fp8(copy.dtype())) {
      fp8_quantize(copy, {}, master.reshape(copy.shape()), rounding.scale, rounding.largest);
    } else {
      copies.push_back(copy);
      masters.push_back(master);
    }
  }
  cast_all(copies, masters);
}

std::vector<Tensor> Optimizer::zeros_like_shards(DType dtype) const {
  const CategoryScope scope(Category::optimizer);
  std::vector<Tensor> tensors;
  for (const ParameterShard& shard : shards_) {
    const Shape& shape = shard.data.shape();
    tensors.push_back(lies_on_host(shard) ? Tensor::empty_on_host(shape, dtype)
                                          : Tensor::empty(shape, dtype));
    tensors.back().zero();
  }
  return tensors;
}

}  // namespace tessera
