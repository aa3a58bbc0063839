// Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024), Mistral, Qwen2.5, dense Qwen3 and OLMo 2.
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
// OLMo 2's block has other norms (olmo2_block.h).
//
// Norms are RMSNorm. Parameters have Hugging Face's names and layouts: weights are [out, in], and
// RoPE's pairs are (i, i + D / 2).
#pragma once

#include "models/llama/config.h"
#include "models/rms_decoder.h"

namespace tessera {

class Llama final : public RmsDecoder {
 public:
  /// Raises Error if the configuration is not valid. The parameters have no memory until a sharding
  /// strategy opens them.
  explicit Llama(const LlamaConfig& config);

  nlohmann::json config() const override;

 private:
  LlamaConfig config_;
};

}  // namespace tessera
