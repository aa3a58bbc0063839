// Stopping a run by a signal: the step is finished, and the run ends with one line.
#pragma once

#include <string_view>

namespace tessera {

/// From now on the first SIGINT or SIGTERM is only remembered. The next one ends the process.
void remember_stop_signals();

/// The signal that was remembered, or 0.
int stop_signal();

/// "SIGINT" or "SIGTERM".
const char* signal_name(int signal);

/// Calls `handler` for the next SIGINT or SIGTERM. The one after it ends the process.
void handle_stop_signals(void (*handler)(int signal));

/// Writes to stderr from such a handler. Where a launcher has started several processes, the first
/// one writes and the others do not.
void write_in_handler(std::string_view text);

}  // namespace tessera
