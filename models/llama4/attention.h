// Llama 4's attention: layers with RoPE in chunks, and layers without RoPE over all tokens.
//
//   with RoPE     q, k = rope(q), rope(k); then, if qk_norm, q, k = norm(q), norm(k) per head,
//                 without weights; a query sees its chunk of its document
//   without       q = temperature(position) q, if temperature_tuning; a query sees its document
//
//   y = o_proj(attention(q, k, v)) with q, k, v = q_proj(x), k_proj(x), v_proj(x)
//
// RoPE's pairs are (2i, 2i + 1). Positions count from the document's start, also for the temperature,
// where Transformers counts from the start of the row.
#pragma once

#include <memory>
#include <string>

#include "models/decoder.h"
#include "models/layers.h"
#include "models/llama4/config.h"
#include "models/rotary_embedding.h"

namespace tessera {

/// The tables that all layers share.
struct Llama4Positions {
  explicit Llama4Positions(const Llama4Config& config);

  RotaryEmbedding rotary;
  /// Multiplies by the temperature: a rotation by 0 with another cosine than 1.
  RotaryEmbedding temperature;
};

struct Llama4Attention final : Module {
  Llama4Attention(const std::string& name, std::int64_t layer, const Llama4Config& config,
                  std::shared_ptr<const Llama4Positions> positions);

  /// [B, T, width] to [B, T, width], plus `residual`.
  Variable operator()(const Variable& x, const Pass& pass, const Variable& residual) const;
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

 private:
  /// A projection's heads in a layer with RoPE.
  Variable rotated(Variable x, std::int64_t heads, const Pass& pass) const;

  std::int64_t layer_, head_size_;
  bool rope_, qk_norm_, temperature_tuning_;
  float norm_epsilon_;
  Linear q_proj_, k_proj_, v_proj_, o_proj_;
  std::shared_ptr<const Llama4Positions> positions_;
};

}  // namespace tessera
