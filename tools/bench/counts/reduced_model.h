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
  /// One more size, larger in every way, to compare with.
  StepSize check_size() const;

  /// The model of a size.
  ResolvedConfig at(const StepSize& size) const;

 private:
  double width_step() const;
  double classes(std::int64_t least) const;

  WorkloadOptions options_;
  ResolvedConfig full_;
  TransformerShape shape_;
  std::int64_t units_ = 1;  // of width, as in extrapolation.h
};

}  // namespace tessera
