// The process before its program runs: standard descriptors and signals.
#pragma once

namespace tessera {

/// Opens /dev/null as those of stdin, stdout and stderr that are closed. Otherwise the next file
/// that the program opens would become its standard output.
void open_standard_descriptors();

/// A write beyond the limit of a file's size, or to a closed pipe, then fails with an error that the
/// program reports. Otherwise the signal ends the process, and a run is lost.
void ignore_write_signals();

}  // namespace tessera
