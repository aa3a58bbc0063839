// Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024), Qwen2.5 and dense Qwen3.
//
//   x = embed_tokens[ids]
//   per block:  h = input_layernorm(x)
//               q, k, v = q_proj(h), k_proj(h), v_proj(h)
//               q, k = q_norm(q), k_norm(k)              (Qwen3: per head)
//               x = x + o_proj(attention(rope(q), rope(k), v))
//               h = post_attention_layernorm(x)
//               x = x + down_proj(silu(gate_proj(h)) * up_proj(h))
//   logits = norm(x) lm_head^T                           (or embed_tokens^T, if tied)
//
// Norms are RMSNorm. Parameters have Hugging Face's names and layouts: weights are [out, in], and
// RoPE's pairs are (i, i + D / 2).
#pragma once

#include <optional>

#include "models/decoder.h"
#include "models/layers.h"
#include "models/llama/config.h"

namespace tessera {

class Llama final : public Decoder {
 public:
  /// Raises Error if the configuration is not valid. The parameters have no memory until a sharding
  /// strategy opens them.
  explicit Llama(const LlamaConfig& config);

  nlohmann::json config() const override;
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

 private:
  Variable embed(const Tensor& ids, const Pass&) const override { return embed_tokens_(ids); }
  Variable final_norm(const Variable& x) const override { return norm_(x); }
  const Parameter& head_weight() const override {
    return lm_head_ ? lm_head_->weight : embed_tokens_.weight;
  }

  LlamaConfig config_;
  Embedding embed_tokens_;
  RmsNorm norm_;
  std::optional<Linear> lm_head_;  // none if it is tied to the embedding
};

}  // namespace tessera
