// GPT-2 (Radford et al. 2019), with Hugging Face's parameter names and layouts.
//
//   x = wte[ids] + wpe[0..T)
//   per block:  x = x + c_proj(attention(c_attn(ln_1(x))));  x = x + c_proj(gelu(c_fc(ln_2(x))))
//   logits = ln_f(x) wte^T                    (the embedding is tied to the head)
//
// Weights of c_attn, c_proj and c_fc are stored [in, out] (Conv1D).
#pragma once

#include "models/decoder.h"
#include "models/gpt2/config.h"
#include "models/layers.h"

namespace tessera {

class Gpt2 final : public Decoder {
 public:
  /// Raises Error if the configuration is not valid. The parameters have no memory until a sharding
  /// strategy opens them.
  explicit Gpt2(const Gpt2Config& config);

  nlohmann::json config() const override;
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

 private:
  Variable embed(const Tensor& ids, const Pass& pass) const override;
  Variable final_norm(const Variable& x) const override { return ln_f_(x); }
  const Parameter& head_weight() const override { return wte_.weight; }

  Gpt2Config config_;
  Embedding wte_;
  Embedding wpe_;
  LayerNorm ln_f_;
};

}  // namespace tessera
