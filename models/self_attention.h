// SelfAttention: grouped queries with rotary positions, as Llama, Qwen and Gemma have it.
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
  /// The block's number.
  std::int64_t layer = 0;
  bool qkv_bias = false;
  bool output_bias = false;
  /// The norms that shape.qk_norm asks for (kernels/qk_norm/op.h).
  double norm_epsilon = 1e-6;
  float norm_offset = 0.0f;
  /// Multiplies the scores; none: 1 / sqrt(head_size).
  std::optional<double> scale = std::nullopt;
  AttentionSpan span = AttentionSpan::document;
  Initializer initializer;
};

/// o_proj(attention(rope(q), rope(k), v)), with q, k, v = q_proj(x), k_proj(x), v_proj(x): one
/// product, whose rows are packed heads. With shape.qk_norm, q and k are q_norm(q) and k_norm(k) first,
/// per head, in the same pass as the rotation; all heads share a weight [head_size].
struct SelfAttention final : Module {
  SelfAttention(const std::string& name, const TransformerShape& shape,
                const SelfAttentionOptions& options, std::shared_ptr<const RotaryEmbedding> rotary);

  /// [B, T, width] to [B, T, width]; plus `residual` if it is defined.
  Variable operator()(const Variable& x, const Pass& pass, const Variable& residual = {}) const;
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

 private:
  std::int64_t layer_;
  AttentionSpan span_;
  std::optional<double> scale_;
  JoinedLinear qkv_proj_;
  Linear o_proj_;
  QkNorm qk_norm_;  // undefined without norms
  std::shared_ptr<const RotaryEmbedding> rotary_;
};

}  // namespace tessera
