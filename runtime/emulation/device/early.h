// Launches that begin before the launch ahead of them has ended.
//
// A GPU may run any of their thread blocks up to their waits for that end. Here the first cluster of the schedule
// does so, while global memory is out of reach. So a kernel that touches it too early faults.
#pragma once

#include <functional>

namespace tessera::emulation {

/// The process's next launch is early. When no thread of its first cluster can go on without the end of the launch
/// ahead, `end` is called. Null: it is not early.
void begin_early(std::function<void()> end);

}  // namespace tessera::emulation
