#include "tools/program/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <iostream>
#include <system_error>
#include <vector>

#include "runtime/check.h"
#include "tools/program/process.h"
#include "tools/program/stop.h"

namespace tessera {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

int report(const std::string& program, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << program << ": " << message << "\n";
  // The status of a process that a signal has ended, as shells report it.
  return stop_signal() != 0 ? 128 + stop_signal() : kFailed;
}

}  // namespace

int run_command_line(Command& program, std::span<const std::string> arguments,
                     const std::function<int()>& body) {
  try {
    program.parse(arguments);
    const int status = body();
    flush_output();
    return status;
  } catch (const UsageError& usage) {
    (usage.asks_for_help() ? std::cout : std::cerr) << usage.text();
    return usage.asks_for_help() ? 0 : kWrongUsage;
  } catch (const ExitStatus& exit) {
    return exit.status;
  } catch (const std::exception& error) {
    return report(program.name(), error.what());
  }
}

void flush_output() {
  errno = 0;
  const bool written =
      std::cout.flush().good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  const std::string reason = std::generic_category().message(errno);
  check(written, "standard output could not be written: {}", errno == 0 ? "disk full?" : reason);
}

int run_main(Command& program, int count, char** arguments, const std::function<int()>& body) {
  start_process(program.name());
  return run_command_line(program, std::vector<std::string>(arguments + 1, arguments + count),
                          body);
}

}  // namespace tessera
