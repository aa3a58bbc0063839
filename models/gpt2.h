// GPT-2 (Radford et al. 2019), with Hugging Face's parameter names and layouts.
//
//   x = wte[ids] + wpe[0..T)
//   per block:  x = x + c_proj(attention(c_attn(ln_1(x))));  x = x + c_proj(gelu(c_fc(ln_2(x))))
//   logits = ln_f(x) wte^T                    (the embedding is tied to the head)
//
// Weights of c_attn, c_proj and c_fc are stored [in, out] (Conv1D).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "models/language_model.h"
#include "models/layers.h"

namespace tessera {

struct Gpt2Config {
  std::int64_t vocab_size = 50257;
  std::int64_t context = 1024;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;
  /// After the embedding and after each block's two branches. (Not on attention weights: those
  /// never exist in memory.)
  double dropout = 0.0;
  double norm_epsilon = 1e-5;
};

/// "gpt2" (124M), "gpt2-medium" (355M), "gpt2-large" (774M), "gpt2-xl" (1558M), as published, and
/// "gpt2-mini" (laptop size: 4 layers, 4 heads, width 256, context 256). Raises Error on others.
Gpt2Config gpt2_preset(std::string_view name);

/// From a Hugging Face config.json. Raises Error on a missing or unsupported entry.
Gpt2Config gpt2_config_from(const nlohmann::json& config);

class Gpt2 final : public LanguageModel {
 public:
  /// Raises Error if a size is not positive or width is not a multiple of heads. The parameters
  /// have no memory until a sharding strategy opens them.
  explicit Gpt2(const Gpt2Config& config);
  ~Gpt2() override;

  const Gpt2Config& hyperparameters() const { return config_; }

  const Units& units() const override { return units_; }
  std::int64_t vocab_size() const override { return config_.vocab_size; }
  std::int64_t context_length() const override { return config_.context; }
  Variable loss(const Tensor& inputs, const Tensor& targets, double loss_scale,
                bool training) override;
  Variable logits(const Tensor& inputs) override;
  KeyValueCache make_cache() const override;
  Tensor next_logits(const Tensor& tokens, KeyValueCache& cache) override;
  nlohmann::json config() const override;
  std::vector<MatmulShape> training_matmuls(std::int64_t tokens) const override;
  double training_flops(std::int64_t batch, std::int64_t sequence_length) const override;
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

 private:
  class Block;

  /// The residual stream [B, T, C] behind the last block.
  Variable trunk(const Tensor& inputs, bool training, KeyValueCache* cache);
  Variable embed(const Tensor& inputs, std::int64_t first_position, bool training) const;
  void check_tokens(const Tensor& inputs, std::int64_t first_position) const;

  Gpt2Config config_;
  Embedding wte_;
  Embedding wpe_;
  std::vector<std::unique_ptr<Block>> blocks_;
  LayerNorm ln_f_;
  Units units_;
};

}  // namespace tessera
