#include "tools/watch/step_watch.h"

#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <utility>

#include "kernels/add/op.h"
#include "kernels/scale/op.h"
#include "kernels/watch/op.h"
#include "runtime/category.h"
#include "runtime/context.h"
#include "sharding/strategy/gradient_norm.h"

namespace tessera {
namespace {

/// In the memory, of device or host, in which the tensor lies.
Tensor copy_of(const Tensor& tensor) {
  const bool on_host = tensor.device() != context().device();
  const Tensor copy = on_host ? Tensor::empty_on_host(tensor.shape(), tensor.dtype())
                              : Tensor::empty(tensor.shape(), tensor.dtype());
  copy.copy_from(tensor);
  return copy;
}

/// The values are not negative. NaN is larger than all others.
float largest_of(std::span<const float> values) {
  return std::ranges::max(values, {},
                          [](float value) { return std::bit_cast<std::int32_t>(value); });
}

std::optional<float> above_zero(float value) {
  return value == 0.0f ? std::nullopt : std::optional(value);
}

}  // namespace

StepWatch::StepWatch(const Strategy& strategy, const Units& units,
                     const ActivationWatch& activations)
    : units_(units), activations_(activations) {
  std::map<std::string, std::size_t> unit_of;
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (const Parameter& parameter : units[i]->parameters()) unit_of[parameter.name()] = i;
  }
  const std::vector<ElementRange> saved = strategy.saved_elements();
  for (std::size_t s = 0; s < saved.size(); ++s) {
    const Shard& shard = strategy.shards()[s];
    if (!shard.gradient.defined() || saved[s].count() == 0) continue;
    parts_.push_back({unit_of.at(shard.parameter.name()), &shard, saved[s]});
  }
  const CategoryScope category(Category::workspace);
  norms_ = Tensor::zeros({static_cast<std::int64_t>(units.size()), kNorms, kNormWords}, DType::i64);
}

void StepWatch::write_norms(Norm norm, const Tensors& values) {
  std::vector<Tensors> of_units(units_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) of_units[parts_[i].unit].push_back(values[i]);
  const Tensor words = norms_.reshape({norms_.numel()});
  for (std::size_t unit = 0; unit < of_units.size(); ++unit) {
    const std::int64_t at = (static_cast<std::int64_t>(unit) * kNorms + norm) * kNormWords;
    own_sum_of_squares(GradientNorm::in(words.slice(at, at + kNormWords)), of_units[unit]);
  }
}

void StepWatch::before_update() {
  const CategoryScope category(Category::workspace);
  Tensors gradients;
  for (const Part& part : parts_) {
    gradients.push_back(part.of(part.shard->gradient));
    before_.push_back(copy_of(part.of(part.shard->data)));
  }
  write_norms(kGradient, gradients);
  write_norms(kWeight, before_);
}

void StepWatch::after_update() {
  current_stream().synchronize();  // the host may read offloaded masters
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    scale(before_[i], before_[i], -1.0);
    add(before_[i], before_[i], parts_[i].of(parts_[i].shard->data));
  }
  write_norms(kUpdate, before_);
  before_.clear();
}

void StepWatch::copy_to_host() {
  norm_words_.emplace(norms_);
  entropies_.emplace(activations_.entropies());
  largest_.emplace(activations_.largest());
}

std::vector<UnitReadings> StepWatch::readings(double loss_scale) const {
  const std::vector<std::int64_t> words = norm_words_->values(), entropies = entropies_->values();
  const std::vector<float> largest = largest_->values();
  const std::size_t columns = largest.size() / units_.size();
  std::vector<UnitReadings> all;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const auto norm = [&](Norm which) {
      const std::size_t at = (i * kNorms + which) * kNormWords;
      return GradientNorm::of_words(std::span(words).subspan(at).first<kNormWords>());
    };
    const auto of_unit = std::span(largest).subspan(i * columns, columns);
    UnitReadings unit = {.unit = units_[i]->name(),
                         .gradient_norm = norm(kGradient) / loss_scale,
                         .update_norm = norm(kUpdate),
                         .weight_norm = norm(kWeight),
                         .largest_activation = above_zero(of_unit.front()),
                         .attention_logit = above_zero(largest_of(of_unit.subspan(1)))};
    const std::int64_t sum = entropies[2 * i], tokens = entropies[2 * i + 1];
    if (tokens > 0) {
      unit.router_entropy = kEntropyUnit * static_cast<double>(sum) / static_cast<double>(tokens);
    }
    all.push_back(std::move(unit));
  }
  return all;
}

}  // namespace tessera
