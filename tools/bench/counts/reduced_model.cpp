#include "tools/bench/counts/reduced_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tools/bench/workload.h"
#include "tools/train/lengths.h"

namespace tessera {

ReducedModel::ReducedModel(const WorkloadOptions& options) : options_(options) {
  options_.overrides.insert(
      options_.overrides.begin(),
      {"runtime.device=cuda", "runtime.compute_dtype=bf16", "data.batch_size=4"});
  full_ = resolve(with_batch_size(workload(options_.model, options_.overrides), /*ranks=*/1));
  shape_ = make_model(full_)->shape();
  units_ = std::gcd(shape_.heads, shape_.kv_heads);
}

StepSize ReducedModel::full_size() const {
  const DataConfig& data = full_.config.data;
  return {static_cast<double>(shape_.layers), static_cast<double>(units_),
          static_cast<double>(data.sequence_length), static_cast<double>(shape_.vocab_size),
          static_cast<double>(data.batch_size)};
}

Extrapolation ReducedModel::extrapolation() const {
  const double step = width_step();
  return Extrapolation({step, 2 * step, 3 * step}, {128, 256, 384}, classes(1024), classes(2048));
}

StepSize ReducedModel::check_size() const {
  return {3, std::min(4 * width_step(), static_cast<double>(units_)), 512, classes(1536), 2};
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
  }
  set_share("model.expert_width", shape_.experts.width);
  set("model.vocab_size", size.classes);
  set("data.sequence_length", size.sequence);
  set("data.batch_size", size.batch);
  return resolve(with_batch_size(workload(options_.model, settings), /*ranks=*/1));
}

double ReducedModel::width_step() const {
  return static_cast<double>(std::max<std::int64_t>(1, units_ / 6));
}

double ReducedModel::classes(std::int64_t least) const {
  return static_cast<double>(least + shape_.vocab_size % 128);
}

}  // namespace tessera
