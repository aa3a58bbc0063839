// Stopping a run by a signal: the step is finished, and the run ends with one line.
#pragma once

#include <string_view>

namespace tessera {

/// From now on the first SIGINT, SIGTERM or SIGUSR1 is only remembered. The next SIGINT or SIGTERM
/// ends the process. SIGUSR1 is for launchers: mpirun passes it on to its processes, and leaves them
/// time to save a checkpoint, and Slurm sends it some time before a job's limit.
void remember_stop_signals();

/// The signal that was remembered, or 0.
int stop_signal();

/// "SIGINT", "SIGTERM" or "SIGUSR1".
const char* signal_name(int signal);

/// Calls `handler` for the next SIGINT or SIGTERM. The one after it ends the process.
void handle_stop_signals(void (*handler)(int signal));

/// Writes to stderr from such a handler. Where a launcher has started several processes, the first
/// one writes and the others do not.
void write_in_handler(std::string_view text);

}  // namespace tessera
