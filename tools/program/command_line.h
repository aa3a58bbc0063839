// A program's command line, and the exit status that every program returns.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "tools/program/options.h"

namespace tessera {

/// Raised by a command that has reported its failure itself: the program ends with this status.
struct ExitStatus {
  int status;
};

/// Reads `arguments` (without the program's name), calls `body` and returns the exit status:
///   0            success, or --help
///   `body`'s     success, with a status of its own
///   1            an error: one line of stderr, from one process of a run
///   2            wrong usage
///   128 + S      signal S stopped a run
int run_command_line(
    Command& program, std::span<const std::string> arguments,
    const std::function<int()>& body = [] { return 0; });

/// Raises Error if standard output could not be written.
void flush_output();

/// A whole main(): start_process and run_command_line.
int run_main(Command& program, int count, char** arguments, const std::function<int()>& body);

}  // namespace tessera
