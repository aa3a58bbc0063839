// Qwen3-MoE (Qwen Team 2025, "Qwen3 Technical Report").
//
//   x = embed_tokens[ids]
//   per block:  h = input_layernorm(x)
//               q, k, v = q_proj(h), k_proj(h), v_proj(h)
//               q, k = q_norm(q), k_norm(k)              (per head)
//               x = x + o_proj(attention(rope(q), rope(k), v))
//               h = post_attention_layernorm(x)
//               p = softmax(gate(h))                     (over all experts)
//               x = x + sum of w_e expert_e(h)           (e: those with the k largest p)
//                 expert_e(h) = down_e(silu(gate_e(h)) * up_e(h)),  w_e = p_e / sum of the chosen p
//   logits = norm(x) lm_head^T                           (or embed_tokens^T, if tied)
//
// It is a dense Qwen3 with experts in place of the feed-forward layer. A layer without experts has
// mlp(h) as Llama has it. Parameters have the names of Transformers 5; the matrices of all experts
// are one parameter, with weights [E, out, in].
#pragma once

#include "models/qwen3_moe/config.h"
#include "models/rms_decoder.h"

namespace tessera {

class Qwen3Moe final : public RmsDecoder {
 public:
  /// Raises Error if the configuration is not valid. The parameters have no memory until a sharding
  /// strategy opens them.
  explicit Qwen3Moe(const Qwen3MoeConfig& config);

  nlohmann::json config() const override;

 private:
  Qwen3MoeConfig config_;
};

}  // namespace tessera
