// LanguageModel: the interface of every language model to the programs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "autograd/adapter.h"
#include "autograd/module.h"
#include "autograd/row_objective.h"
#include "autograd/unit.h"
#include "autograd/variable.h"
#include "kernels/cross_entropy/op.h"
#include "models/key_value_cache.h"
#include "models/transformer_shape.h"

namespace tessera {

class Routers;
class StageRelay;

/// From a weight that may have an adapter (is_adaptable, autograd/adapter.h) to its adapter, or null.
using MakeAdapter = std::function<std::shared_ptr<const Adapter>(const Parameter& weight)>;

/// A sequence's part of a forward pass of generation.
struct NewTokens {
  Tensor tokens;  // i32 [n], at least one
  KeyValueCache* cache = nullptr;
  /// So many of the last tokens get logits, 1 to n.
  std::int64_t rows = 1;
};

/// Parts of a model, [first, last): the embedding is part 0, then come the blocks, and the head is the last. Tied or
/// not, embedding and head are two parts.
struct Stage {
  std::int64_t first = 0, last = 0;
};

class LanguageModel : public Module {
 public:
  virtual const TransformerShape& shape() const = 0;
  /// Embedding, blocks, head: in forward order. Tied embedding and head are one unit, the first.
  virtual const Units& units() const = 0;
  /// Gives adapters to weights of the blocks; their factors belong to the units of the weights. Called once,
  /// before a strategy takes over the units.
  virtual void add_adapters(const MakeAdapter& make) = 0;

  /// loss_scale * sum of the cross-entropies of predicting targets [B, T] from inputs [B, T] (i32).
  /// A target of -100 is ignored and adds nothing; see valid_targets(). A token may have several, with weights:
  /// [B, T, K] (kernels/cross_entropy/op.h). f32 (f64 for f64).
  ///
  /// The head computes its gradients in this forward pass, so the normalizer is an input: pass
  /// loss_scale = 1 / (valid targets of the whole step). Every micro-batch and every rank passes the
  /// same number, and the sum of all their losses is then the mean over the step's valid targets.
  /// Backward must start from this variable. Raises Error if T exceeds the context.
  ///
  /// `document_starts` (i32 [B, T], models/documents.h) tells documents in a row apart; undefined: a
  /// row is one document. With an `objective` of the tokens' cross-entropies the loss is that of the
  /// objective (autograd/operations.h).
  virtual Variable loss(const Tensor& inputs, const Targets& targets, double loss_scale,
                        bool training, const Tensor& document_starts = Tensor(),
                        const RowObjective& objective = {}) = 0;

  /// The parts of loss() that one rank of a pipeline computes. `x` is the residual stream [B, T, width] before them,
  /// undefined before the embedding. Returns the residual stream behind them, or behind the head the loss.
  /// Routers count, and add the losses of, the blocks of the stage.
  virtual Variable loss_of_stage(const Stage& stage, const Variable& x, const Tensor& inputs,
                                 const Targets& targets, double loss_scale, bool training,
                                 const Tensor& document_starts = Tensor(),
                                 const RowObjective& objective = {}) = 0;

  /// Logits [B, T, V] of predicting the next token after each of inputs [B, T], in the dtype that
  /// the model computes in: that of the parameters' windows.
  virtual Variable logits(const Tensor& inputs, const Tensor& document_starts = Tensor()) = 0;

  /// Logits [rows of all sequences, V] of the tokens after each sequence's last new tokens, which follow
  /// those of its cache; the caches grow by them. They are f32 in every compute dtype (f64 for f64). No
  /// gradients. A sequence has the logits that it has alone. Raises Error if a cache would exceed the
  /// context.
  virtual Tensor next_logits(std::span<const NewTokens> sequences) = 0;
  /// One sequence's logits [V].
  Tensor next_logits(const Tensor& tokens, KeyValueCache& cache);

  /// From now on logits(), next_logits() and log_probabilities() compute the parts of this rank, and have the
  /// results of all parts on every rank (models/stage_relay.h). Null: all parts are here. `relay` must outlive
  /// these calls.
  virtual void set_relay(StageRelay* relay) = 0;

  /// The routers of a mixture of experts; null if the model has none.
  virtual Routers* routers() const { return nullptr; }

  /// Natural logarithms of the probabilities of `targets` [B, T] after each of `inputs` [B, T] (i32),
  /// [B, T] f32 in every 16-bit or f32 compute dtype (f64 for f64); 0 where a target is -100. On the
  /// CPU they have the bits of the terms of loss(), and those that next_logits gives in any batch and
  /// however the tokens are fed. No gradients.
  virtual Tensor log_probabilities(const Tensor& inputs, const Tensor& targets) = 0;

  /// The Hugging Face config.json.
  virtual nlohmann::json config() const = 0;
};

/// The natural logarithm of the probability of each of `targets` [N] by a row of logits [N, V], which
/// are f32 or f64. As in LanguageModel::log_probabilities.
Tensor log_probabilities_of(const Tensor& logits, const Tensor& targets);

/// Whether a unit is a block: neither the embedding nor the head.
bool is_block(const LanguageModel& model, const Unit& unit);

/// Floating-point operations of the head's products per token, forward and backward.
double head_flops(const LanguageModel& model);

/// training_flops() of the model's shape, less the 2 per token of each frozen weight, whose gradient is not
/// computed, and with 6 per token of each weight of an adapter.
double training_flops(const LanguageModel& model, std::int64_t batch, std::int64_t sequence_length);

/// The number of targets that count: all but -100. Waits for the device if `targets` lies on one.
std::int64_t valid_targets(const Tensor& targets);

}  // namespace tessera
