#include "tools/program/stop.h"

#include <unistd.h>

#include <csignal>

#include "sharding/comm/launcher.h"

namespace tessera {
namespace {

volatile std::sig_atomic_t received = 0;
volatile std::sig_atomic_t writes = 1;

void remember(int signal) {
  received = signal;
  std::signal(SIGUSR1, SIG_IGN);
  // The second one may be the other signal.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  write_in_handler("\nstopping after this step; a second signal stops at once\n");
}

}  // namespace

void remember_stop_signals() {
  handle_stop_signals(remember);
  std::signal(SIGUSR1, remember);
}

int stop_signal() {
  return received;
}

const char* signal_name(int signal) {
  if (signal == SIGUSR1) return "SIGUSR1";
  return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

void handle_stop_signals(void (*handler)(int signal)) {
  writes = find_launch().process == 0 ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

/// Calls nothing but functions that a signal handler may call.
void write_in_handler(std::string_view text) {
  if (writes == 0) return;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace tessera
