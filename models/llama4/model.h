// Llama 4's text model (Meta 2025; transformers 5.23.0, models/llama4/modeling_llama4.py).
//
//   x = embed_tokens[ids]
//   per block:  h = input_layernorm(x)
//               x = x + self_attn(h)                      (attention.h)
//               h = post_attention_layernorm(x)
//               x = x + feed_forward(h), in some layers   down_proj(silu(gate_proj(h)) * up_proj(h))
//                 in the others   shared_expert(h) + sum of expert_e(w_e h)
//                                 e: the k largest of l = router(h), w_e = sigmoid(l_e)
//                                 expert_e(h) = (silu(h gate_e) * (h up_e)) down_e
//   logits = norm(x) lm_head^T                            (or embed_tokens^T, if tied)
//
// Norms are RMSNorm. Parameters have Hugging Face's names and layouts: weights are [out, in], but
// those of the experts [E, in, out].
#pragma once

#include "models/llama4/config.h"
#include "models/rms_decoder.h"

namespace tessera {

class Llama4 final : public RmsDecoder {
 public:
  /// Raises Error if the configuration is not valid. The parameters have no memory until a sharding
  /// strategy opens them.
  explicit Llama4(const Llama4Config& config);

  nlohmann::json config() const override;

 private:
  Llama4Config config_;
};

}  // namespace tessera
