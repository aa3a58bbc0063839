// Cross-entropy on a GPU of rows with gaps between them.
//
// linear_cross_entropy calls it for a chunk of logits.
#pragma once

#include "kernels/cross_entropy/op.h"
#include "runtime/step_values.h"

namespace tessera::cuda {

/// The factor of a step's loss, as its kernels take it.
inline StepValue<float> loss_factor(double loss_scale) {
  return step_value(static_cast<float>(loss_scale), [](const StepNumbers& numbers) {
    return static_cast<float>(numbers.loss_factor);
  });
}

/// Rows of logits in a buffer, with the targets that belong to them.
struct LogitRows {
  Tensor logits;         // [rows, stride], of which the first `classes` columns are used
  std::int64_t classes;  // at least 1
  Targets targets;       // of the rows
  std::int64_t first;    // the first row's position in its batch, for messages
  int ignore_index;
};

/// losses [rows] f32, 0 where ignored. A target that is not a class becomes the stream's fault.
void losses_of_rows(Out losses, const LogitRows& rows);

/// The same, and the logits become their gradients: scale * factors[n] * (softmax - targets), zero where
/// ignored. Undefined factors [rows] f32 are 1. Every row is read once and written once.
void losses_and_gradients_of_rows(Out losses, const LogitRows& rows, const StepValue<float>& scale,
                                  const Tensor& factors = Tensor());

/// result [1] = scale * (sum of losses), added in an order that depends on their number alone.
void scaled_sum(Out result, const Tensor& losses, const StepValue<float>& scale);

}  // namespace tessera::cuda
