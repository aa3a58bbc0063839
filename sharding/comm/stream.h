// The stream on which ranks talk, and what waiting for it costs.
#pragma once

#include "runtime/stream.h"

namespace tessera {

/// The current context's side stream for everything that ranks send each other.
const Stream& communication_stream();

/// Lets the compute stream wait for `event`; the time this takes is communication that computation
/// did not hide, the profiler's span "exposed communication". (On a GPU the stream waits, and the
/// span is the GPU's time.)
void wait_for_communication(const Event& event);

}  // namespace tessera
