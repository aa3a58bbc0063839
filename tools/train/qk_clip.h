// QkClip: bounds the attention logits of heads by their weights (Kimi Team 2025, "Kimi K2", section 2.1).
//
// After the update of a step, a head whose largest logit m in the step was above the threshold t has its query
// weights and its key weights scaled by sqrt(t / m) each, with their biases. A key head that several query
// heads share stays, so that no other head changes, and the query weights are scaled by t / m. The paper treats
// its shared rotary keys in this way.
//
// The largest logits are exact over all micro-batches and ranks (kernels/watch/op.h), and every element is
// scaled by itself. So weights have the same bits however they are cut. The host waits for the logits before it
// queues the products. In GPT-2's layout a product has one row of a head, so clipping costs more there.
#pragma once

#include <span>
#include <vector>

#include "models/language_model.h"
#include "sharding/shard.h"
#include "tools/config/config.h"

namespace tessera {

class QkClip {
 public:
  /// `shards` must outlive it.
  QkClip(const LanguageModel& model, const std::vector<Shard>& shards, double threshold);

  /// Scales masters. `largest`: that of ActivationWatch, of all ranks. `gradient_scale` [1] f32: if it
  /// is not finite, the update was skipped, and nothing changes.
  void apply(const Tensor& largest, const Tensor& gradient_scale) const;

 private:
  /// A shard of query or key weights, or of both.
  struct Part {
    const Shard* shard = nullptr;
    std::size_t unit = 0;
  };
  void scale_part(const Part& part, std::span<const float> largest_logits) const;

  std::vector<Part> parts_;
  std::size_t heads_;
  double threshold_, exponent_;
};

/// Raises Error if the run clips, and its groups or the model do not allow it.
void check_qk_clip(const OptimizerConfig& optimizer, const LanguageModel& model);

}  // namespace tessera
