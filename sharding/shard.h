// Shard: the part of one parameter that this rank owns.
//
// The optimizer updates shards; checkpoints and imported weights are read into them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/parameter.h"
#include "runtime/tensor.h"
#include "sharding/plan/held_part.h"

namespace tessera {

/// The part may be empty. With offloading, all three tensors lie in host memory: synchronize the
/// compute stream before the host reads or writes them.
struct Shard {
  Parameter parameter;
  /// The rank's own values: the masters (f32 or bf16), or a frozen parameter's values in the
  /// compute dtype. Shaped like the held part if this rank owns all of it, flat otherwise. Written in Step::update() and Strategy::write_masters() only.
  Tensor data;
  /// The same values in the dtype of windows, where units or gathers read such a copy; undefined where
  /// they read `data`, and for a frozen parameter. The strategy writes it after the masters are
  /// written, unless the optimizer has done so (see Writes).
  Tensor copy = {};
  /// The reduced gradient, f32. Valid from the step's last finish_micro_batch() to the next
  /// start_step(). Undefined for a frozen parameter.
  Tensor gradient;
  /// The part of the parameter that the rank computes with, and the flat index in it of the shard's
  /// first element.
  HeldPart part = {};
  std::int64_t first = 0;
  /// The first unit of its bucket, by its place in the forward pass.
  int unit = 0;

  /// The parameter's elements that the shard has, from its beginning; the rest of it is padding.
  Elements elements() const { return part.elements.from(first); }
  std::int64_t count() const {
    return std::clamp<std::int64_t>(part.count - first, 0, data.numel());
  }
};

/// The tensors that a write of the masters writes: Shard::data alone, or Shard::copy as well. The
/// strategy casts masters to the copies that are not written.
enum class Writes { masters, masters_and_copies };

/// All parameters of a model, as the ranks hold them together. A strategy implements it.
class ShardedParameters {
 public:
  virtual ~ShardedParameters() = default;
  /// This rank's shards: one for every parameter of the model, or of the rank's stages of it.
  virtual const std::vector<Shard>& shards() const = 0;
  /// Every parameter of the model.
  virtual std::vector<Parameter> parameters() const = 0;
  using Visit = std::function<void(const Parameter&, const Tensor&)>;
  using Includes = std::function<bool(const Parameter&)>;
  /// Gathers one parameter after another in f32, in the order of parameters(), and calls `visit` with
  /// each that `includes` takes; the others are not gathered. A collective: every rank must call it.
  /// The tensor is valid during the call.
  virtual void visit_whole(
      const Visit& visit, const Includes& includes = [](const Parameter&) { return true; }) = 0;
};

}  // namespace tessera
