// The side streams of a strategy, and the times that computation waits for them.
#pragma once

#include <optional>

#include "runtime/stream.h"

namespace tessera {

/// The current context's side stream, on which ranks exchange tensors.
const Stream& communication_stream();
/// The side stream on which the optimizer writes masters under the next forward pass.
const Stream& update_stream();

/// Makes the compute stream wait for `event`. The time of the wait is communication that computation
/// did not hide, the profiler's span "exposed communication". (On a GPU the stream waits, and the
/// span is the GPU's time.)
void wait_for_communication(const Event& event);
/// The same for an event that needs only one wait, because later work is queued after that wait.
/// Clears the event. Without an event there is no span, which would take two events of a GPU.
void wait_for_communication(std::optional<Event>& event);
/// The same for an event of the update stream: the span "exposed update".
void wait_for_update(std::optional<Event>& event);

}  // namespace tessera
