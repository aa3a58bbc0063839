#include "models/routers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/context_axis.h"
#include "autograd/leaf_sum.h"
#include "kernels/add/op.h"
#include "kernels/cast/op.h"
#include "runtime/category.h"
#include "runtime/check.h"

namespace tessera {
namespace {

constexpr std::string_view kBiasName = ".e_score_correction_bias";

/// f32 or f64 values on the device.
Tensor tensor_of(const std::vector<double>& values, DType dtype) {
  const CategoryScope category(Category::other);
  const Shape shape{static_cast<std::int64_t>(values.size())};
  if (dtype == DType::f64) return Tensor::from(values, shape);
  return Tensor::from(std::vector<float>(values.begin(), values.end()), shape);
}

/// A pass over a layer's counts adds to them.
void add_counts(std::vector<std::int64_t>& sums, std::int64_t layer, const Tensor& offsets) {
  const std::vector<std::int64_t> counts = expert_counts(offsets);
  for (std::size_t e = 0; e < counts.size(); ++e) {
    sums[static_cast<std::size_t>(layer) * counts.size() + e] += counts[e];
  }
}

}  // namespace

bool is_router_bias(std::string_view tensor) {
  return tensor.ends_with(kBiasName);
}

Routers::Routers(std::int64_t experts, std::int64_t experts_per_token, RouterWeights weights)
    : experts_(experts), experts_per_token_(experts_per_token), weights_(weights) {}

std::int64_t Routers::add_layer(const std::string& router) {
  biases_.push_back({.name = router + std::string(kBiasName), .values = {}});
  device_biases_.emplace_back();
  terms_.push_back(std::make_shared<RouterLossTerms>());
  return layers() - 1;
}

Routing Routers::route(std::int64_t layer, const Variable& logits, bool training) {
  Variable used = logits;
  if (training && training_.force_balance) used = with_forced_choice(used);
  if (training && in_step_ && has_loss()) used = with_losses(layer, used);
  const Routing routing =
      tessera::route(used, {.experts_per_token = experts_per_token_,
                            .weights = weights_,
                            .bias = bias_of(layer, statistics_dtype(logits.dtype()))});
  if (recording_) {
    const bool waits = training_.balance == Balance::hf;
    pass_.layers.push_back({layer, routing.order.offsets, waits ? used.data() : Tensor()});
  }
  return routing;
}

void Routers::set_training(const RouterTraining& training) {
  training_ = training;
  if (training.balance != Balance::bias) return;
  for (std::size_t layer = 0; layer < biases_.size(); ++layer) {
    if (!biases_[layer].values.empty()) continue;
    set_bias(layer, std::vector<float>(static_cast<std::size_t>(experts_), 0.0f));
  }
}

void Routers::start_step(const RouterStep& step) {
  in_step_ = true;
  step_ = step;
  chosen_in_step_.clear();
  losses_ = Tensor::zeros({step.losses}, DType::f32);
  passes_.assign(biases_.size(), 0);
}

void Routers::start_forward() {
  recording_ = in_step_;
  pass_ = {};
  if (recording_) start_leaves();
}

void Routers::finish_forward() {
  if (!recording_) return;
  recording_ = false;
  if (pass_.layers.empty()) return;
  pass_.loss = loss_of_pass(pass_.layers.front().layer);
  for (const RoutedLayer& routed : pass_.layers) {
    chosen_in_step_.push_back({routed.layer, routed.offsets});
    ++passes_[static_cast<std::size_t>(routed.layer)];
  }
  if (training_.balance != Balance::hf) {
    finish_leaves(pass_.loss);
    pass_ = {};
  } else if (!step_.in_stages) {
    const RoutedPass pass = take_pass();
    balance(pass, counts_of(pass));
  }
}

RoutedPass Routers::take_pass() {
  return std::exchange(pass_, {});
}

std::vector<std::int64_t> Routers::counts_of(const RoutedPass& pass) const {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(experts_), 0);
  for (const RoutedLayer& routed : pass.layers) add_counts(sums, 0, routed.offsets);
  return sums;
}

void Routers::balance(const RoutedPass& pass, const std::vector<std::int64_t>& counts) {
  if (pass.layers.empty()) return;
  start_leaves();
  const Tensor& logits = pass.layers.front().logits;
  const std::int64_t tokens = logits.numel() / experts_ * layers();
  const Tensor factors =
      factors_of(counts, tokens, tokens * step_.micro_batches, statistics_dtype(logits.dtype()));
  for (const RoutedLayer& routed : pass.layers) {
    terms_[static_cast<std::size_t>(routed.layer)]->factors = factors;
    add_loss(routed.layer, routed.logits, pass.loss);
  }
  finish_leaves(pass.loss);
}

void Routers::start_leaves() {
  const std::int64_t leaves = token_leaves();
  losses_of_leaves_ = leaves > 1 ? Tensor::zeros({leaves}, DType::f32) : Tensor();
}

void Routers::finish_leaves(const Tensor& loss) {
  if (!losses_of_leaves_.defined()) return;
  const std::int64_t leaves = losses_of_leaves_.numel();
  LeafSum sum(loss, Accumulate::yes, leaves);
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
    sum.add(losses_of_leaves_.slice(leaf, leaf + 1));
  }
}

std::vector<std::int64_t> Routers::counts() const {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(layers() * experts_), 0);
  for (const RoutedLayer& chosen : chosen_in_step_) {
    add_counts(sums, chosen.layer, chosen.offsets);
  }
  return sums;
}

void Routers::check_counts(const std::vector<std::int64_t>& counts) const {
  check(counts.size() == biases_.size() * static_cast<std::size_t>(experts_),
        "the routers got {} counts; expected {} layers of {} experts", counts.size(), layers(),
        experts_);
}

void Routers::set_last_step(LastStep last) {
  if (!last.counts.empty()) check_counts(last.counts);
  last_ = std::move(last);
}

void Routers::finish_step(const std::vector<std::int64_t>& counts) {
  check_counts(counts);
  in_step_ = false;
  last_ = {.counts = counts, .tokens = step_.tokens};
  if (training_.balance != Balance::bias) return;
  for (std::size_t layer = 0; layer < biases_.size(); ++layer) {
    std::vector<float> values = biases_[layer].values;
    update_router_bias(values, counts_of_layer(counts, static_cast<std::int64_t>(layer)),
                       training_.bias_rate);
    set_bias(layer, std::move(values));
  }
}

ExpertLoads Routers::loads() const {
  ExpertLoads loads;
  if (last_.counts.empty()) return loads;
  for (std::int64_t layer = 0; layer < layers(); ++layer) {
    loads.imbalance.push_back(load_imbalance(counts_of_layer(last_.counts, layer)));
  }
  loads.idle = std::count(last_.counts.begin(), last_.counts.end(), 0);
  return loads;
}

void Routers::set_bias(std::size_t layer, std::vector<float> values) {
  RouterBias& bias = biases_.at(layer);
  check(values.size() == static_cast<std::size_t>(experts_), "{} has {} values; expected {}",
        bias.name, values.size(), experts_);
  const bool finite =
      std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  check(finite, "{} has a value that is NaN or infinite", bias.name);
  bias.values = std::move(values);
  Tensor& on_device = device_biases_[layer];  // a graph reads it where it is
  if (on_device.defined()) {
    on_device.copy_from(
        tensor_of(std::vector<double>(bias.values.begin(), bias.values.end()), on_device.dtype()));
  }
}

bool Routers::has_loss() const {
  return training_.balance == Balance::lagged || training_.balance == Balance::hf ||
         training_.z_loss != 0.0;
}

Tensor Routers::bias_of(std::int64_t layer, DType dtype) {
  const auto i = static_cast<std::size_t>(layer);
  const std::vector<float>& values = biases_[i].values;
  if (values.empty()) return {};
  Tensor& bias = device_biases_[i];
  if (!bias.defined() || bias.dtype() != dtype) {
    bias = tensor_of(std::vector<double>(values.begin(), values.end()), dtype);
  }
  return bias;
}

Tensor Routers::factors_of(const std::vector<std::int64_t>& counts, std::int64_t counted_tokens,
                           std::int64_t tokens, DType dtype) const {
  if (counts.empty()) {
    return tensor_of(std::vector<double>(static_cast<std::size_t>(experts_), 0.0), dtype);
  }
  return tensor_of(balance_factors(counts, training_.loss_coefficient, counted_tokens, tokens),
                   dtype);
}

Variable Routers::with_losses(std::int64_t layer, const Variable& logits) {
  const std::shared_ptr<RouterLossTerms>& terms = terms_[static_cast<std::size_t>(layer)];
  if (recording_) {
    terms->scale = step_.loss_scale;
    terms->z = training_.z_loss / static_cast<double>(step_.tokens * layers());
    if (training_.balance != Balance::hf) {  // hf: balance() adds them when all layers have routed
      const bool lagged = training_.balance == Balance::lagged && !last_.counts.empty();
      terms->factors =
          factors_of(lagged ? counts_of_layer(last_.counts, layer) : std::vector<std::int64_t>(),
                     last_.tokens, step_.tokens * layers(), statistics_dtype(logits.dtype()));
      add_loss(layer, logits.data(), loss_of_pass(layer));
    }
  }
  return add_router_loss(logits, terms);
}

void Routers::add_loss(std::int64_t layer, const Tensor& logits, const Tensor& loss) {
  const NoGradient no_gradient;
  const RouterLossTerms& terms = *terms_[static_cast<std::size_t>(layer)];
  const Tensor rows = logits.reshape({logits.numel() / experts_, experts_});
  const std::int64_t leaves = losses_of_leaves_.defined() ? losses_of_leaves_.numel() : 1;
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
    const Variable of_leaf(rows_of_leaf(rows, leaf, leaves));
    const Tensor value = tessera::router_loss(of_leaf, terms.factors, terms.z).data();
    Tensor scaled = value;
    if (value.dtype() != DType::f32) {
      scaled = Tensor::empty({1}, DType::f32);
      cast(scaled, value);
    }
    const Tensor sum = leaves == 1 ? loss : losses_of_leaves_.slice(leaf, leaf + 1);
    add(sum, sum, scaled);
  }
}

Tensor Routers::loss_of_pass(std::int64_t layer) const {
  const std::int64_t part = passes_[static_cast<std::size_t>(layer)] % step_.losses;
  return losses_.slice(part, part + 1);
}

Variable Routers::with_forced_choice(const Variable& logits) {
  constexpr float kLowered = -30'000.0f;
  if (!forced_.defined() || forced_.shape() != logits.shape() ||
      forced_.dtype() != logits.dtype()) {
    const CategoryScope category(Category::other);
    std::vector<float> values(static_cast<std::size_t>(logits.data().numel()), kLowered);
    const std::int64_t tokens = logits.data().numel() / experts_;
    for (std::int64_t n = 0; n < tokens; ++n) {
      for (std::int64_t s = 0; s < experts_per_token_; ++s) {
        const std::int64_t expert = (n * experts_per_token_ + s) % experts_;
        values[static_cast<std::size_t>(n * experts_ + expert)] = 0.0f;
      }
    }
    const Tensor f32 = Tensor::from(values, logits.shape());
    forced_ = f32;
    if (logits.dtype() != DType::f32) {
      forced_ = Tensor::empty(logits.shape(), logits.dtype());
      cast(forced_, f32);
    }
  }
  return add(logits, Variable(forced_));
}

std::vector<std::int64_t> Routers::counts_of_layer(const std::vector<std::int64_t>& counts,
                                                   std::int64_t layer) const {
  const auto begin = counts.begin() + layer * experts_;
  return {begin, begin + experts_};
}

}  // namespace tessera
