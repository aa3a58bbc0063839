// A model, and the smaller ones whose steps are counted in its place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/transformer_shape.h"
#include "tools/bench/command_line.h"
#include "tools/bench/counts/extrapolation.h"
#include "tools/train/resolve.h"

namespace tessera {

/// A training step of a model in bf16 on a GPU. The smaller models have the same number of channels
/// in a head. Their heads, widths and channels inside the feed-forward layer have the full model's
/// ratios.
///
/// Tokens take the experts in turn (moe.force_balance), so that counts do not depend on the routers.
/// The sizes give every expert whole tiles of 128 rows, and whole tiles of 256 channels where the full
/// model's experts have three of them or more: the grouped products' work is a polynomial then.
class ReducedModel {
 public:
  /// Raises Error if there is no such model.
  explicit ReducedModel(const WorkloadOptions& options);

  /// The full model.
  const TransformerShape& shape() const { return shape_; }
  const ResolvedConfig& full() const { return full_; }
  StepSize full_size() const;

  /// The sizes that are counted. The head's classes leave the same remainder as the model's, for
  /// the same alignment.
  Extrapolation extrapolation() const;
  /// One more size to compare with, larger in most ways.
  StepSize check_size() const;
  /// The model of a size.
  ResolvedConfig at(const StepSize& size) const;

 private:
  double width_step() const;
  double classes(std::int64_t least) const;
  bool has_experts() const { return shape_.experts.layers > 0; }
  /// Experts of the full model have at least three tiles of channels, and no part of one.
  bool has_tiled_experts() const;
  std::int64_t expert_width(double width) const;

  WorkloadOptions options_;
  ResolvedConfig full_;
  TransformerShape shape_;
  std::int64_t units_ = 1;  // of width, as in extrapolation.h
};

}  // namespace tessera
