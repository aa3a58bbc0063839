// Decoder: the parts that every decoder-only model shares.
//
//   x = embed(ids)
//   x = block(x)                                  for every block
//   logits = final_norm(x) head_weight^T
//
// A model is a class derived from Decoder. It holds the embedding and the final norm, adds its units
// in its constructor, and says how a block computes. The rest is here: the trunk, the loss, the
// logits, and generation with a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/language_model.h"
#include "models/rotary_embedding.h"
#include "models/routers.h"

namespace tessera {

/// The keys that a query sees, up to itself: its document's, or the near ones of these
/// (TransformerShape::Near).
enum class AttentionSpan { document, near };

/// One forward pass through the model.
struct Pass {
  /// Whether dropout acts.
  bool training = false;
  /// The tokens before this pass's, in generation; null otherwise.
  KeyValueCache* cache = nullptr;
  /// i32 [B, T]: the tokens' positions in their documents. Undefined: a row is one document.
  Tensor document_positions;
  /// Tokens of a whole row if ranks share them out (autograd/context_axis.h); else 0. The batch elements
  /// are then pieces of rows, and `document_positions` is defined.
  std::int64_t row_tokens = 0;
  /// i32 [B, T]: the first key that each query sees (kernels/attention/first_key.h), of its document
  /// and of the near ones. Undefined: the first of the row.
  Tensor first_key, first_key_near;

  /// In generation, several sequences at once: each one's own pass, with `tokens` of the rows, which
  /// lie one after another in the only element of the batch. Attention takes the sequences one by
  /// one; everything else sees rows. Empty if there is one sequence.
  std::vector<Pass> sequences = {};
  std::int64_t tokens = 0;

  /// The position of the pass's first token.
  std::int64_t first_position() const { return cache != nullptr ? cache->length : 0; }
  TokenPositions positions() const;
  const Tensor& first_key_of(AttentionSpan span) const {
    return span == AttentionSpan::near ? first_key_near : first_key;
  }
};

/// Causal self-attention over packed heads (see `attention` in autograd/operations.h), over the
/// cache's tokens too if the pass has a cache. `layer` is the block's number. With `rotary`, queries
/// and keys are rotated by their tokens' positions, and with `norm` normalized before; in place if
/// they are temporaries. The scale is 1 / sqrt(head_size) unless it is given.
Variable attend(Variable qkv, std::int64_t heads, std::int64_t kv_heads, const Pass& pass,
                std::int64_t layer, const RotaryEmbedding* rotary = nullptr,
                const QkNorm& norm = {}, AttentionSpan span = AttentionSpan::document,
                std::optional<double> scale = {});

/// The same for separate queries [B, T, heads * head_size], and keys and values [B, T, kv_heads *
/// head_size].
Variable attend(const Variable& q, const Variable& k, const Variable& v, std::int64_t heads,
                std::int64_t kv_heads, const Pass& pass, std::int64_t layer,
                AttentionSpan span = AttentionSpan::document);

class DecoderBlock : public Module {
 public:
  /// [B, T, width] to [B, T, width]. Runs a second time in backward if the block is recomputed.
  virtual Variable forward(const Variable& x, const Pass& pass) const = 0;
};

class Decoder : public LanguageModel {
 public:
  const TransformerShape& shape() const final { return shape_; }
  const Units& units() const final { return units_; }
  void add_adapters(const MakeAdapter& make) final;
  Variable loss(const Tensor& inputs, const Targets& targets, double loss_scale, bool training,
                const Tensor& document_starts = Tensor(), const RowObjective& objective = {}) final;
  Variable loss_of_stage(const Stage& stage, const Variable& x, const Tensor& inputs,
                         const Targets& targets, double loss_scale, bool training,
                         const Tensor& document_starts = Tensor(),
                         const RowObjective& objective = {}) final;
  Variable logits(const Tensor& inputs, const Tensor& document_starts = Tensor()) final;
  using LanguageModel::next_logits;
  Tensor next_logits(std::span<const NewTokens> sequences) final;
  Tensor log_probabilities(const Tensor& inputs, const Tensor& targets) final;
  void set_relay(StageRelay* relay) final { relay_ = relay; }
  Routers* routers() const final { return routers_.get(); }

 protected:
  explicit Decoder(const TransformerShape& shape) : shape_(shape) {}

  // A model adds its units in forward order: tied ends, then the blocks; or the embedding, the
  // blocks, and the head.

  /// Adds the first unit: the embedding with the head, which share a weight, and the final norm.
  void add_tied_ends(const std::vector<const Module*>& modules);
  /// Adds the first unit: an embedding that is not the head's weight.
  void add_embedding(const Module& module);
  /// Adds the next block, as a unit of this name.
  void add_block(const std::string& unit_name, std::unique_ptr<DecoderBlock> block);
  /// The routers that the blocks route through, if a block has experts.
  void set_routers(std::shared_ptr<Routers> routers) {
    if (routers->layers() > 0) routers_ = std::move(routers);
  }
  /// Adds the last unit: the final norm and a head with a weight of its own.
  void add_head(const std::vector<const Module*>& modules);
  const std::vector<std::unique_ptr<DecoderBlock>>& blocks() const { return blocks_; }

  /// Token ids [B, T] to the residual stream [B, T, width].
  virtual Variable embed(const Tensor& ids, const Pass& pass) const = 0;
  virtual Variable final_norm(const Variable& x) const = 0;
  /// [vocab_size, width].
  virtual const Parameter& head_weight() const = 0;

 private:
  /// Embedding, blocks and head.
  std::int64_t parts() const { return static_cast<std::int64_t>(blocks_.size()) + 2; }
  /// The residual stream [B, T, width] behind the stage's embedding and blocks.
  Variable trunk(const Stage& stage, Variable x, const Tensor& ids, const Pass& pass);
  /// The same behind all blocks; undefined on a rank without the head. The caches get the tokens' rows.
  Variable trunk(const Tensor& ids, const Pass& pass);
  /// head(x), a result of this shape, on every rank. Its dtype is x's, or, if it is `wide`, f32 (f64 for f64).
  Variable from_head(const Variable& x, const Shape& shape, bool wide,
                     const std::function<Variable(const Variable&)>& head);
  /// The pass with the places of its tokens. `document_starts` may be undefined.
  Pass placed(Pass pass, const Tensor& ids, const Tensor& document_starts) const;
  void check_tokens(const Tensor& ids, const Pass& pass) const;
  /// Logits [N, V] of rows [N, width] of the residual stream, f32 (f64 for f64). Not linear(): logits
  /// rounded to 16 bits would often tie.
  Tensor wide_logits(const Variable& rows) const;
  /// The residual stream of all rows [1, N, width], where ranks share them out.
  Variable whole(const Variable& x, const Tensor& ids) const;
  /// The unit of the final norm and the head.
  Unit& head_unit() const;

  TransformerShape shape_;
  std::vector<std::unique_ptr<DecoderBlock>> blocks_;
  Units units_;
  std::shared_ptr<Routers> routers_;
  StageRelay* relay_ = nullptr;
};

}  // namespace tessera
