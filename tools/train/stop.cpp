#include "tools/train/stop.h"

#include <unistd.h>

#include <csignal>

namespace tessera {
namespace {

volatile std::sig_atomic_t received = 0;

/// Calls nothing but functions that a signal handler may call.
void remember(int signal) {
  constexpr char kText[] = "\nstopping after this step; a second signal stops at once\n";
  received = signal;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText, sizeof(kText) - 1);
}

}  // namespace

void remember_stop_signals() {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

int stop_signal() {
  return received;
}

const char* signal_name(int signal) {
  return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

}  // namespace tessera
