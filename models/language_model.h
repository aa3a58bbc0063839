// What every language model offers to the programs.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "autograd/module.h"
#include "autograd/variable.h"
#include "sharding/strategy.h"

namespace tessera {

/// What a model remembers of the tokens it has seen, so that each further token costs one row of
/// work: the packed query/key/value rows of every layer, [1, context, channels].
struct KeyValueCache {
  std::vector<Tensor> layers;
  std::int64_t length = 0;
  std::int64_t capacity = 0;
};

class LanguageModel : public Module {
 public:
  /// Embedding, blocks, head: in forward order.
  virtual const Units& units() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  /// The longest sequence the model can see.
  virtual std::int64_t context_length() const = 0;

  /// loss_scale * sum of the cross-entropies of predicting targets [B, T] from inputs [B, T] (i32);
  /// targets of -100 are ignored. With loss_scale = 1 / (number of valid targets) it is the mean.
  /// Gradients of the head are computed on the way, so backward must start from here.
  /// Raises Error if T exceeds the context.
  virtual Variable loss(const Tensor& inputs, const Tensor& targets, double loss_scale,
                        bool training) = 0;

  /// Logits [B, T, V] of predicting the next token after each of inputs [B, T].
  virtual Variable logits(const Tensor& inputs) = 0;

  /// An empty cache for one sequence.
  virtual KeyValueCache make_cache() const = 0;
  /// Logits [V] of the token after `tokens` [n], which follow what `cache` holds; the cache grows
  /// by n. No gradients. Raises Error if the cache would exceed the context.
  virtual Tensor next_logits(const Tensor& tokens, KeyValueCache& cache) = 0;

  /// The Hugging Face config.json.
  virtual nlohmann::json config() const = 0;

  /// Floating-point operations of training on one token of a T-token sequence: 6 per weight that
  /// takes part in a matrix product (the head included, lookups not), plus 6 * layers * width * T
  /// for causal attention (half of the full square).
  virtual double training_flops_per_token(std::int64_t sequence_length) const = 0;
};

}  // namespace tessera
