#include "tools/program/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>
#include <string>

#include "tools/program/stop.h"

namespace tessera {
namespace {

/// Written before the handler is set: a handler may not format text.
std::string line_of_sigint, line_of_sigterm;

void end_by_signal(int signal) {
  write_in_handler(signal == SIGINT ? line_of_sigint : line_of_sigterm);
  ::raise(signal);  // SA_RESETHAND: this time it ends the process
}

void open_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const bool closed = ::fcntl(descriptor, F_GETFD) == -1 && errno == EBADF;
    // open returns the lowest free descriptor: this one, since those below it are open.
    if (closed && ::open("/dev/null", O_RDWR) < 0) return;
  }
}

}  // namespace

void start_process(std::string_view program) {
  open_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_DFL);
  line_of_sigint = std::string(program) + ": stopped by SIGINT\n";
  line_of_sigterm = std::string(program) + ": stopped by SIGTERM\n";
  handle_stop_signals(end_by_signal);
}

void outlive_closed_pipes() {
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace tessera
