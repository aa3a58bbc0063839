// Stopping a run by a signal: the step is finished, and the run ends with one line.
#pragma once

namespace tessera {

/// From now on the first SIGINT or SIGTERM is only remembered. The next one ends the process.
void remember_stop_signals();

/// The signal that was received, or 0.
int stop_signal();

/// "SIGINT" or "SIGTERM".
const char* signal_name(int signal);

}  // namespace tessera
