// The start of every program: standard descriptors and signals.
#pragma once

#include <string_view>

namespace tessera {

/// Every main() calls it first. `program` is the name in messages.
///
/// - /dev/null takes the place of those of stdin, stdout and stderr that are closed. Otherwise the
///   next file that the program opens would become its standard output.
/// - A write beyond the limit of a file's size fails with an error that the program reports.
///   Otherwise the signal would end the process without a message.
/// - A write to a closed pipe ends the process without a message, also where the parent process
///   ignores SIGPIPE: the reader of "tessera plan ... | head" has seen enough.
/// - SIGINT and SIGTERM end the process with one line, "bench_step: stopped by SIGINT", and the
///   status of that signal.
void start_process(std::string_view program);

/// For a run that is worth more than its output: from now on a write to a closed pipe fails, and the
/// run goes on.
void outlive_closed_pipes();

}  // namespace tessera
