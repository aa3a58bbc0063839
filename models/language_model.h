// What every language model offers to the programs.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "autograd/module.h"
#include "autograd/unit.h"
#include "autograd/variable.h"
#include "kernels/op.h"

namespace tessera {

/// C [m, n] = op(A) op(B) with inner dimension k, `count` times.
struct MatmulShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Transpose transpose_a = Transpose::no;
  Transpose transpose_b = Transpose::no;
  std::int64_t count = 1;

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(count);
  }
};

/// What a model remembers of the tokens it has seen, so that each further token costs one row of
/// work: the packed query/key/value rows of every layer, [1, capacity, channels], in the dtype that
/// the model computes in. A layer gets its memory when it sees the first token.
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
  /// targets of -100 are ignored; f32 (f64 for f64). With loss_scale = 1 / (number of valid
  /// targets) it is the mean. Gradients of the head are computed on the way, so backward must start
  /// from here. Raises Error if T exceeds the context.
  virtual Variable loss(const Tensor& inputs, const Tensor& targets, double loss_scale,
                        bool training) = 0;

  /// Logits [B, T, V] of predicting the next token after each of inputs [B, T], in the dtype that
  /// the model computes in: that of the parameters' windows.
  virtual Variable logits(const Tensor& inputs) = 0;

  /// An empty cache for one sequence.
  virtual KeyValueCache make_cache() const = 0;
  /// Logits [V] of the token after `tokens` [n], which follow what `cache` holds; the cache grows
  /// by n. They are f32 whatever the model computes in (f64 for f64). No gradients. Raises Error if
  /// the cache would exceed the context.
  virtual Tensor next_logits(const Tensor& tokens, KeyValueCache& cache) = 0;

  /// The Hugging Face config.json.
  virtual nlohmann::json config() const = 0;

  /// The matrix products of one forward and backward pass over `tokens` tokens, attention's apart.
  virtual std::vector<MatmulShape> training_matmuls(std::int64_t tokens) const = 0;
  /// Floating-point operations of one forward and backward pass: 6 per token and weight that takes
  /// part in a matrix product (the head included, lookups not), and for causal attention (half of
  /// the full square) 6 * layers * width * T per token of a T-token sequence. Recomputation does
  /// not count.
  virtual double training_flops(std::int64_t batch, std::int64_t sequence_length) const = 0;
};

}  // namespace tessera
