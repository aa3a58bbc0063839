// The frame of Llama and the families that follow it.
//
//   x = embed_tokens[ids]              (times a number, if the family has one)
//   x = block(x)                       for every block
//   logits = norm(x) lm_head^T         (or embed_tokens^T, if tied)
//
// The final norm is an RMSNorm. Parameters have Transformers' names: model.embed_tokens, model.layers.0,
// ..., model.norm, lm_head. A model is a class derived from RmsDecoder that makes the blocks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "models/decoder.h"
#include "models/gated_mlp.h"
#include "models/layers.h"
#include "models/moe_mlp.h"

namespace tessera {

/// Transformers' initializer_range: of every weight, those of routers and experts too. Unlike GPT-2's,
/// layers that end a branch do not start smaller.
inline const Initializer kUsualInitial = Initializer::normal(0.02);

/// The block of Llama and the families that follow it:
///
///   x = x + self_attn(input_layernorm(x))
///   x = x + feed_forward(post_attention_layernorm(x))
///
/// Attention is a Module that is called with (x, pass, residual).
template <typename Attention>
class RmsBlock final : public DecoderBlock {
 public:
  RmsBlock(const std::string& name, std::int64_t width, double norm_epsilon, Attention attention,
           std::variant<GatedMlp, MoeMlp> feed_forward)
      : self_attn_(std::move(attention)),
        feed_forward_(std::move(feed_forward)),
        input_layernorm_(name + ".input_layernorm", width, static_cast<float>(norm_epsilon)),
        post_attention_layernorm_(name + ".post_attention_layernorm", width,
                                  static_cast<float>(norm_epsilon)) {}

  Variable forward(const Variable& x, const Pass& pass) const override {
    const Variable middle = self_attn_(input_layernorm_(x), pass, x);
    const Variable normed = post_attention_layernorm_(middle);
    if (const auto* const mlp = std::get_if<GatedMlp>(&feed_forward_))
      return (*mlp)(normed, middle);
    return std::get<MoeMlp>(feed_forward_)(normed, pass.training, middle);
  }

  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override {
    self_attn_.visit_parameters(visit);
    std::visit([&](const Module& layer) { layer.visit_parameters(visit); }, feed_forward_);
    input_layernorm_.visit_parameters(visit);
    post_attention_layernorm_.visit_parameters(visit);
  }

 private:
  Attention self_attn_;
  std::variant<GatedMlp, MoeMlp> feed_forward_;
  RmsNorm input_layernorm_;
  RmsNorm post_attention_layernorm_;
};

class RmsDecoder : public Decoder {
 public:
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const final;

 protected:
  struct Options {
    double norm_epsilon;
    bool tied;
    /// The embedding of this token gets no gradient from lookups (Embedding).
    std::optional<std::int64_t> padding_id;
    Initializer initializer = kUsualInitial;
    /// Is added to the weights of norms (RmsNorm).
    float norm_offset = 0.0f;
    /// Embeddings are multiplied by this number, rounded to their dtype; none: they are not.
    std::optional<double> embedding_scale = std::nullopt;
  };
  /// A block by its name ("model.layers.0") and its number.
  using MakeBlock =
      std::function<std::unique_ptr<DecoderBlock>(const std::string& name, std::int64_t layer)>;

  /// The embedding and the final norm.
  RmsDecoder(const TransformerShape& shape, const Options& options);
  /// Adds all blocks, and the head if it is not tied. The constructor of a model calls it once.
  void add_blocks(const MakeBlock& make);

 private:
  Variable embed(const Tensor& ids, const Pass&) const final;
  Variable final_norm(const Variable& x) const final { return norm_(x); }
  const Parameter& head_weight() const final {
    return lm_head_ ? lm_head_->weight : embed_tokens_.weight;
  }

  Options options_;
  Embedding embed_tokens_;
  RmsNorm norm_;
  std::optional<Linear> lm_head_;  // none if it is tied to the embedding
};

}  // namespace tessera
