// OLMo 2's block: norms behind attention and the feed-forward layer (OLMo Team 2024, "2 OLMo 2 Furious", section 3).
//
//   q, k, v = q_norm(q_proj(x)), k_norm(k_proj(x)), v_proj(x)
//   x = x + post_attention_layernorm(o_proj(attention(rope(q), rope(k), v)))
//   x = x + post_feedforward_layernorm(down_proj(silu(gate_proj(x)) * up_proj(x)))
//
// Unlike Qwen3's, q_norm and k_norm take all heads of a token together: their weights are [heads * head_size] and
// [kv_heads * head_size]. So q, k and v are three products, and tensor-parallel ranks cannot share out the heads.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "models/decoder.h"
#include "models/gated_mlp.h"
#include "models/layers.h"
#include "models/llama/config.h"
#include "models/rotary_embedding.h"

namespace tessera {

struct Olmo2Attention final : Module {
  Olmo2Attention(const std::string& name, std::int64_t layer, const LlamaConfig& config,
                 std::shared_ptr<const RotaryEmbedding> rotary);

  /// [B, T, width] to [B, T, width].
  Variable operator()(const Variable& x, const Pass& pass) const;
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

 private:
  std::int64_t layer_, heads_, kv_heads_;
  Linear q_proj_, k_proj_, v_proj_, o_proj_;
  RmsNorm q_norm_, k_norm_;
  std::shared_ptr<const RotaryEmbedding> rotary_;
};

class Olmo2Block final : public DecoderBlock {
 public:
  Olmo2Block(const std::string& name, std::int64_t layer, const LlamaConfig& config,
             std::shared_ptr<const RotaryEmbedding> rotary);

  Variable forward(const Variable& x, const Pass& pass) const override;
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

 private:
  Olmo2Attention self_attn_;
  GatedMlp mlp_;
  RmsNorm post_attention_layernorm_, post_feedforward_layernorm_;
};

}  // namespace tessera
