// The frame of Llama and the families that follow it.
//
//   x = embed_tokens[ids]
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

#include "models/decoder.h"
#include "models/layers.h"

namespace tessera {

class RmsDecoder : public Decoder {
 public:
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const final;

 protected:
  struct Options {
    double norm_epsilon;
    bool tied;
    /// The embedding of this token gets no gradient from lookups (Embedding).
    std::optional<std::int64_t> padding_id;
    Initializer initializer;
  };
  /// A block by its name ("model.layers.0") and its number.
  using MakeBlock =
      std::function<std::unique_ptr<DecoderBlock>(const std::string& name, std::int64_t layer)>;

  /// The embedding and the final norm.
  RmsDecoder(const TransformerShape& shape, const Options& options);
  /// Adds all blocks, and the head if it is not tied. The constructor of a model calls it once.
  void add_blocks(const MakeBlock& make);

 private:
  Variable embed(const Tensor& ids, const Pass&) const final { return embed_tokens_(ids); }
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
