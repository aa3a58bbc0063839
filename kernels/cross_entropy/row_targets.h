// The targets of a row of logits, on the CPU.
#pragma once

#include "kernels/cpu/numeric.h"
#include "kernels/cross_entropy/op.h"

namespace tessera::cpu {

/// The targets of one row, some of them in its columns [0, columns).
struct RowTargets {
  const std::int32_t* classes;
  const float* weights;  // null: 1
  std::int64_t count, first_class;
  int ignore_index;

  bool ignored() const { return classes[0] == ignore_index; }
  float weight(std::int64_t k) const { return weights == nullptr ? 1.0f : weights[k]; }
  /// f(k, column) of those in the columns.
  template <typename F>
  void for_each(std::int64_t columns, F f) const {
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t column = classes[k] - first_class;
      if (classes[k] != ignore_index && 0 <= column && column < columns) f(k, column);
    }
  }
  /// The weighted sum of the targets' logits.
  template <typename T>
  compute_t<T> logit(const T* logits, std::int64_t columns) const {
    compute_t<T> sum{0};
    for_each(columns, [&](std::int64_t k, std::int64_t column) {
      sum += static_cast<compute_t<T>>(weight(k)) * load(logits[column]);
    });
    return sum;
  }
};

/// The targets of row n, for columns that begin with class `first_class`.
class TargetsOfRows {
 public:
  TargetsOfRows(const Targets& targets, int ignore_index, std::int64_t first_class = 0)
      : classes_(targets.classes.data<std::int32_t>()),
        weights_(targets.weights.defined() ? targets.weights.data<float>() : nullptr),
        each_(targets.each()),
        first_class_(first_class),
        ignore_index_(ignore_index) {}

  RowTargets operator[](std::int64_t n) const {
    return {classes_ + n * each_, weights_ == nullptr ? nullptr : weights_ + n * each_, each_,
            first_class_, ignore_index_};
  }

 private:
  const std::int32_t* classes_;
  const float* weights_;
  std::int64_t each_, first_class_;
  int ignore_index_;
};

}  // namespace tessera::cpu
