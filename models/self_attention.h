// SelfAttention: grouped queries with rotary positions, as Llama, Qwen2 and Qwen3 have it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  Initializer initializer;
};

/// o_proj(attention(rope(q), rope(k), v)), with q, k, v = q_proj(x), k_proj(x), v_proj(x).
struct SelfAttention final : Module {
  SelfAttention(const std::string& name, const SelfAttentionOptions& options,
                std::shared_ptr<const RotaryEmbedding> rotary);

  /// [B, T, width] to [B, T, width]. `layer` is the block's number.
  Variable operator()(const Variable& x, const Pass& pass, std::int64_t layer) const;
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

 private:
  /// A projection's heads: normalized if there is a norm, then rotated.
  Variable positioned(Variable x, std::int64_t heads, const std::optional<RmsNorm>& norm,
                      const Pass& pass) const;

  std::int64_t heads_, kv_heads_, head_size_;
  Linear q_proj_, k_proj_, v_proj_, o_proj_;
  std::optional<RmsNorm> q_norm_, k_norm_;
  std::shared_ptr<const RotaryEmbedding> rotary_;
};

}  // namespace tessera
