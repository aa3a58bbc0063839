// The search for the first operation of a step whose output is not finite.
//
// train.on_nonfinite=explain: when loss or norm are not finite, nothing has been updated. So the step runs
// again from the same weights, on the same batch, with the same random numbers, and every operation's
// arguments are read before and after it. Kernels write their first argument, and others too: an output
// is an argument with other bytes after the operation.
#pragma once

#include <string>

#include "tools/train/session.h"

namespace tessera {

/// One sentence about the first operation in the order of the step (OperationPlace) whose output is not
/// finite: its unit, rank, kind of values, and the ranges of its operands; the same on every rank. If
/// all outputs are finite, it says so. A collective that takes the time of several steps; it waits for
/// the device after each operation, and changes neither weights nor optimizer.
std::string explain_nonfinite(TrainingSession& session, Communicator& world, std::int64_t step,
                              const BatchSource& source);

}  // namespace tessera
