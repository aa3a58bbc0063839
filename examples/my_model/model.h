// A decoder of your own: attention and the feed-forward layer side by side.
//
//   x = embed_tokens[ids]
//   per block:  h = input_layernorm(x)
//               x = x + self_attn(h) + mlp(h)
//   logits = norm(x) lm_head^T
//
// These are the parallel layers of PaLM (Chowdhery et al. 2022, section 2). docs/adding_a_model.md
// walks through the file.
#pragma once

#include <nlohmann/json.hpp>

#include "models/gated_mlp.h"
#include "models/rms_decoder.h"
#include "models/self_attention.h"

namespace tessera {

struct MyConfig {
  std::int64_t vocab_size = 64;
  std::int64_t context = 32;
  std::int64_t layers = 2;
  std::int64_t heads = 2;
  std::int64_t width = 32;
  std::int64_t mlp_width = 64;
};

inline constexpr float kNormEpsilon = 1e-6f;
inline const Initializer kInitial = Initializer::normal(0.1);

class MyBlock final : public DecoderBlock {
 public:
  MyBlock(const std::string& name, std::int64_t layer, const TransformerShape& shape,
          std::shared_ptr<const RotaryEmbedding> rotary)
      : input_layernorm_(name + ".input_layernorm", shape.width, kNormEpsilon),
        self_attn_(name + ".self_attn", shape, {.layer = layer, .initializer = kInitial},
                   std::move(rotary)),
        mlp_(name + ".mlp", shape.width, shape.mlp_width, /*with_bias=*/false, kInitial) {}

  Variable forward(const Variable& x, const Pass& pass) const override {
    const Variable h = input_layernorm_(x);
    return add(x, add(self_attn_(h, pass), mlp_(h)));
  }

  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override {
    input_layernorm_.visit_parameters(visit);
    self_attn_.visit_parameters(visit);
    mlp_.visit_parameters(visit);
  }

 private:
  RmsNorm input_layernorm_;
  SelfAttention self_attn_;
  GatedMlp mlp_;
};

class MyModel final : public RmsDecoder {
 public:
  explicit MyModel(const MyConfig& config)
      : RmsDecoder(shape_of(config), {.norm_epsilon = kNormEpsilon, .initializer = kInitial}) {
    const auto rotary =
        std::make_shared<RotaryEmbedding>(RopeConfig{}, shape(), RopePairs::half_split);
    add_blocks([&](const std::string& name, std::int64_t layer) {
      return std::make_unique<MyBlock>(name, layer, shape(), rotary);
    });
  }

  nlohmann::json config() const override {
    return {{"model_type", "my_model"},
            {"vocab_size", shape().vocab_size},
            {"hidden_size", shape().width},
            {"num_hidden_layers", shape().layers},
            {"num_attention_heads", shape().heads}};
  }

 private:
  static TransformerShape shape_of(const MyConfig& config) {
    return {.vocab_size = config.vocab_size,
            .context = config.context,
            .layers = config.layers,
            .width = config.width,
            .heads = config.heads,
            .kv_heads = config.heads,
            .head_size = config.width / config.heads,
            .mlp_width = config.mlp_width,
            .gated_mlp = true};
  }
};

}  // namespace tessera
