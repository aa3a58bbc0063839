// A norm's backward pass on the emulated GPU, counted at its full size.
//
// It cuts its rows into chunks, each with a line of partial sums (kernels/cuda/column_sums.h). There are
// at most as many chunks as a GPU works on at a time. So their number is no polynomial of the number of
// rows, and small steps do not tell it.
#pragma once

#include "tools/bench/counts/emulated/step_work.h"
#include "tools/bench/counts/reduced_model.h"

namespace tessera {

/// The work of one launch in the full model: a norm between two layers, with the gradient of the
/// residual.
StepWork count_norm_backward(const ReducedModel& model);

/// Gives the norms of every layer this work in place of the extrapolated one. `layer` is one of `layers`
/// layers of `step`.
void take_norm_backward(StepWork& step, StepWork& layer, double layers, const StepWork& norm);

}  // namespace tessera
