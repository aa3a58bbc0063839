// SelfAttention: grouped queries with rotary positions, as Llama, Qwen2 and Qwen3 have it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "models/decoder.h"
#include "models/layers.h"
#include "models/rotary_embedding.h"

namespace tessera {

struct SelfAttentionOptions {
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  /// Need not be width / heads.
  std::int64_t head_size = 0;
  bool qkv_bias = false;
  bool output_bias = false;
  /// Queries and keys are normalized per head before they are rotated. All heads share a weight
  /// [head_size].
  bool qk_norm = false;
  float norm_epsilon = 1e-6f;
  AttentionSpan span = AttentionSpan::document;
  Initializer initializer;
};

/// o_proj(attention(rope(q), rope(k), v)), with q, k, v = q_proj(x), k_proj(x), v_proj(x): one
/// product, whose rows are packed heads. With norms, q and k are q_norm(q) and k_norm(k) first, in the
/// same pass as the rotation.
struct SelfAttention final : Module {
  SelfAttention(const std::string& name, const SelfAttentionOptions& options,
                std::shared_ptr<const RotaryEmbedding> rotary);

  /// [B, T, width] to [B, T, width]; plus `residual` if it is defined. `layer` is the block's number.
  Variable operator()(const Variable& x, const Pass& pass, std::int64_t layer,
                      const Variable& residual = {}) const;
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

 private:
  std::int64_t heads_, kv_heads_;
  AttentionSpan span_;
  JoinedLinear qkv_proj_;
  Linear o_proj_;
  QkNorm qk_norm_;  // undefined without norms
  std::shared_ptr<const RotaryEmbedding> rotary_;
};

}  // namespace tessera
