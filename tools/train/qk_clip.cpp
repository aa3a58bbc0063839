#include "tools/train/qk_clip.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "kernels/scale/op.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/host_copy.h"
#include "tools/config/optimizer_groups.h"

namespace tessera {
namespace {

bool has_name(const Parameter& parameter, std::string_view layer) {
  return parameter.name().find(layer) != std::string::npos;
}

/// The number of heads, from the first on, among a parameter's outputs that are clipped: queries, keys, or in
/// GPT-2's joined weight both.
std::int64_t clipped_heads(const Parameter& parameter) {
  const Cut& cut = parameter.cut();
  if (cut.divided != Divided::outputs || cut.piece != "head" || parameter.in_adapter()) return 0;
  if (has_name(parameter, ".c_attn.")) return 2 * cut.pieces;
  const bool own_keys = has_name(parameter, ".k_proj.") && cut.uses == 1;
  return own_keys || has_name(parameter, ".q_proj.") ? cut.pieces : 0;
}

/// Elements of a parameter that follow one another and belong to one head.
std::int64_t elements_of_head(const Parameter& parameter) {
  const Shape& shape = parameter.shape();
  const Cut& cut = parameter.cut();
  std::int64_t behind = 1;
  for (int d = cut.dimension; d < shape.rank(); ++d) behind *= shape[d];
  return behind / (cut.groups * cut.pieces);
}

}  // namespace

QkClip::QkClip(const LanguageModel& model, const std::vector<Shard>& shards, double threshold)
    : heads_(static_cast<std::size_t>(model.shape().heads)),
      threshold_(threshold),
      exponent_(model.shape().kv_heads == model.shape().heads ? 0.5 : 1.0) {
  std::map<std::string, std::size_t> unit_of;
  for (std::size_t i = 0; i < model.units().size(); ++i) {
    for (const Parameter& parameter : model.units()[i]->parameters()) unit_of[parameter.name()] = i;
  }
  for (const Shard& shard : shards) {
    if (clipped_heads(shard.parameter) == 0) continue;
    parts_.push_back({&shard, unit_of.at(shard.parameter.name())});
  }
}

void QkClip::apply(const Tensor& largest, const Tensor& gradient_scale) const {
  const HostCopy<float> readings(largest), scale(gradient_scale);
  current_stream().synchronize();
  if (!std::isfinite(scale.values().front())) return;
  const std::vector<float> values = readings.values();
  for (const Part& part : parts_) {
    scale_part(part, std::span(values).subspan(part.unit * (1 + heads_) + 1, heads_));
  }
}

void QkClip::scale_part(const Part& part, std::span<const float> largest_logits) const {
  const Shard& shard = *part.shard;
  const std::int64_t clipped = clipped_heads(shard.parameter);
  const std::int64_t size = elements_of_head(shard.parameter);
  const std::int64_t pieces = shard.parameter.cut().groups * shard.parameter.cut().pieces;
  const auto flat = [](const Tensor& x, std::int64_t first, std::int64_t count) {
    return x.reshape({x.numel()}).slice(first, first + count);
  };
  const auto scale_run = [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
    const std::int64_t piece = element / size % pieces;
    if (piece >= clipped) return;
    const double logit = largest_logits[static_cast<std::size_t>(piece) % heads_];
    if (!(logit > threshold_)) return;
    const Tensor master = flat(shard.data, offset, count);
    scale(master, master, std::pow(threshold_ / logit, exponent_));
  };
  shard.elements().for_each_run(
      shard.count(), [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
        for (std::int64_t done = 0; done < count;) {
          const std::int64_t in_head = std::min(count - done, size - (element + done) % size);
          scale_run(element + done, offset + done, in_head);
          done += in_head;
        }
      });
}

void check_qk_clip(const OptimizerConfig& optimizer, const LanguageModel& model) {
  if (optimizer.qk_clip == 0.0) return;
  const std::vector<OptimizerGroup> groups = optimizer_groups(optimizer);
  check(std::any_of(groups.begin(), groups.end(),
                    [](const auto& g) { return g.settings.name == OptimizerKind::muon; }),
        "it belongs to muon, and no group has muon; set optimizer.name=muon or leave it out");
  check(
      !model.shape().qk_norm && !model.shape().plain_qk_norm,
      "the model has norms of queries and keys, which undo a scale of their weights; leave it out");
  for (const Parameter& parameter : parameters_of(model)) {
    check(
        clipped_heads(parameter) == 0 || (parameter.trainable() && parameter.adapter() == nullptr),
        "{} is frozen or has an adapter, so its heads cannot be scaled; leave it out",
        parameter.name());
  }
}

}  // namespace tessera
