#include "tools/bench/counts/reduced_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/matmul/options.h"
#include "tools/measure/workload.h"
#include "tools/train/lengths.h"

namespace tessera {
namespace {

constexpr std::int64_t kTile = 256;  // the widest of the grouped products, in channels

}  // namespace

ReducedModel::ReducedModel(const WorkloadOptions& options) : options_(options) {
  options_.overrides.insert(
      options_.overrides.begin(),
      {"runtime.device=cuda", "runtime.compute_dtype=bf16", "data.batch_size=4"});
  full_ = resolve(with_batch_size(workload(options_.model, options_.overrides), /*ranks=*/1));
  shape_ = make_model(full_)->shape();
  units_ = std::gcd(shape_.heads, shape_.kv_heads);
  if (!has_experts()) return;
  options_.overrides.emplace_back("moe.force_balance=true");
  full_ = resolve(with_batch_size(workload(options_.model, options_.overrides), /*ranks=*/1));
}

StepSize ReducedModel::full_size() const {
  const DataConfig& data = full_.config.data;
  return {static_cast<double>(shape_.layers),        static_cast<double>(units_),
          static_cast<double>(data.sequence_length), static_cast<double>(shape_.vocab_size),
          static_cast<double>(data.batch_size),      static_cast<double>(shape_.experts.count)};
}

Extrapolation ReducedModel::extrapolation() const {
  const double step = width_step(), all = static_cast<double>(units_);
  const Extrapolation::Nodes widths = has_tiled_experts()
                                          ? Extrapolation::Nodes{all - 2 * step, all - step, all}
                                          : Extrapolation::Nodes{step, 2 * step, 3 * step};
  const SizeEnds head = {classes(1024), classes(2048)};
  if (!has_experts()) return Extrapolation(widths, {128, 256, 384}, head);
  // A token's experts are all, or half of them.
  const auto experts = static_cast<double>(shape_.experts.per_token);
  return Extrapolation(widths, {256, 512, 768}, head, {experts, 2 * experts});
}

StepSize ReducedModel::check_size() const {
  const double step = width_step(), all = static_cast<double>(units_);
  if (!has_experts()) return {3, std::min(4 * step, all), 512, classes(1536), 2};
  const double width = has_tiled_experts() ? all - 2 * step : 2 * step;
  return {2, width, 512, classes(1536), 2, 4 * static_cast<double>(shape_.experts.per_token)};
}

ResolvedConfig ReducedModel::at(const StepSize& size) const {
  const auto share = [&](std::int64_t full) {
    return full * static_cast<std::int64_t>(size.width) / units_;
  };
  std::vector<std::string> settings = options_.overrides;
  const auto set = [&](const char* key, double value) {
    settings.push_back(fmt::format("{}={}", key, static_cast<std::int64_t>(value)));
  };
  const auto set_share = [&](const char* key, std::int64_t full) {
    if (full > 0) set(key, static_cast<double>(share(full)));
  };
  set("model.layers", size.layers);
  set_share("model.heads", shape_.heads);
  set_share("model.width", shape_.width);
  if (shape_.gated_mlp) {
    set_share("model.kv_heads", shape_.kv_heads);
    set("model.head_size", static_cast<double>(shape_.head_size));
    set_share("model.mlp_width", shape_.mlp_width);
    // The kernels of the full model.
    const bool epilogue = takes_swiglu_epilogue(full_.config.kernels.swiglu, shape_.width);
    const auto choice = epilogue ? SwigluChoice::epilogue : SwigluChoice::separate;
    settings.push_back(fmt::format("kernels.swiglu={}", enum_name(choice)));
  }
  if (has_experts()) {
    set("model.experts", size.experts);
    set("model.expert_width", static_cast<double>(expert_width(size.width)));
  }
  set("model.vocab_size", size.classes);
  set("data.sequence_length", size.sequence);
  set("data.batch_size", size.batch);
  return resolve(with_batch_size(workload(options_.model, settings), /*ranks=*/1));
}

double ReducedModel::width_step() const {
  return static_cast<double>(std::max<std::int64_t>(1, units_ / 6));
}

bool ReducedModel::has_tiled_experts() const {
  return has_experts() && shape_.experts.width % kTile == 0 && shape_.experts.width >= 3 * kTile &&
         static_cast<double>(units_) > 2 * width_step();
}

/// Tiled experts have a tile of channels more for each step of width.
std::int64_t ReducedModel::expert_width(double width) const {
  const double all = static_cast<double>(units_);
  if (has_tiled_experts()) {
    return shape_.experts.width - kTile * static_cast<std::int64_t>((all - width) / width_step());
  }
  return shape_.experts.width * static_cast<std::int64_t>(width) / units_;
}

double ReducedModel::classes(std::int64_t least) const {
  return static_cast<double>(least + shape_.vocab_size % 128);
}

}  // namespace tessera
