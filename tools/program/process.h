// The start of every program: standard descriptors and signals.
#pragma once

#include <string_view>

namespace tessera {

/// Every main() calls it first. `program` is the name in messages.
///
/// - /dev/null takes the place of those of stdin, stdout and stderr that are closed. Otherwise the
///   next file that the program opens would become its standard output.
/// - A write beyond the limit of a file's size, or to a closed pipe, fails with an error that the
///   program reports. Otherwise the signal would end the process without a message.
/// - SIGINT and SIGTERM end the process with one line, "bench_step: stopped by SIGINT", and the
///   status of that signal.
void start_process(std::string_view program);

}  // namespace tessera
