// Records as trace events, for records that no profiler made: those of a predicted step.
#pragma once

#include <string>
#include <vector>

#include "runtime/profiler.h"

namespace tessera {

/// The events of one rank, as trace_events() of profiler.h; times are shifted by so many microseconds.
std::string trace_events(const std::vector<Profiler::Record>& records, int rank, double shift_us);

}  // namespace tessera
