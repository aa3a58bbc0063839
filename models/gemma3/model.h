// Gemma 3's text models (Gemma Team 2025, "Gemma 3 Technical Report").
//
//   x = sqrt(width) embed_tokens[ids]                    (the root is rounded to x's dtype)
//   per block:  h = input_layernorm(x)
//               q, k, v = q_proj(h), k_proj(h), v_proj(h)
//               q, k = q_norm(q), k_norm(k)              (per head)
//               x = x + post_attention_layernorm(o_proj(attention(rope(q), rope(k), v)))
//               h = pre_feedforward_layernorm(x)
//               x = x + post_feedforward_layernorm(down_proj(gelu(gate_proj(h)) * up_proj(h)))
//   logits = norm(x) embed_tokens^T                      (or lm_head^T, if not tied)
//
// Norms are RMSNorm and multiply by 1 + weight; gelu has the form of tanh. Scores are divided by the root of
// query_scalar. Queries of local layers see a window, and local and global layers have angles of different
// thetas. Parameters have Hugging Face's names and layouts: weights are [out, in], and RoPE's pairs are
// (i, i + D / 2).
#pragma once

#include "models/gemma3/config.h"
#include "models/rms_decoder.h"

namespace tessera {

class Gemma3 final : public RmsDecoder {
 public:
  /// Raises Error if the configuration is not valid. The parameters have no memory until a sharding
  /// strategy opens them.
  explicit Gemma3(const Gemma3Config& config);

  nlohmann::json config() const override;

 private:
  Gemma3Config config_;
};

}  // namespace tessera
