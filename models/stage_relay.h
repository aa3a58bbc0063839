// StageRelay: a forward pass without gradients through a model with parts on several ranks.
//
// A pipeline implements it (tools/train/pipeline_passes.h) and gives it to its model, so that a model in training
// can generate and score. Every rank makes the same calls: they are collectives.
#pragma once

#include <functional>

#include "autograd/variable.h"
#include "models/language_model.h"
#include "runtime/dtype.h"

namespace tessera {

class StageRelay {
 public:
  virtual ~StageRelay() = default;

  /// Computes some parts of the model from the residual stream before them, which is undefined before the embedding.
  using StageFunction = std::function<Variable(const Stage& parts, const Variable& x)>;

  /// Calls `compute` for each stage of this rank, and passes its results on. Returns that of the last stage on
  /// its rank, and an undefined variable on the others. `tokens` is [B, T].
  virtual Variable run_stages(const Shape& tokens, const StageFunction& compute) = 0;
  /// The last stage's `result` on every rank, a tensor of this shape and dtype; undefined on the others before.
  virtual Tensor share(const Tensor& result, const Shape& shape, DType dtype) = 0;
  /// The dtype of the residual stream between stages.
  virtual DType dtype() const = 0;
};

}  // namespace tessera
