#include "tools/program/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <iostream>
#include <system_error>
#include <vector>

#include "runtime/check.h"
#include "sharding/comm/world.h"
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

int run_command_line(CLI::App& app, std::span<const std::string> arguments,
                     const std::function<int()>& body) {
  try {
    // CLI11 takes the last argument first.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    const int status = body();
    flush_output();
    return status;
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : kWrongUsage;  // 0: --help
  } catch (const ExitStatus& exit) {
    return exit.status;
  } catch (const FailedElsewhere&) {
    return kFailed;
  } catch (const std::exception& error) {
    return report(app.get_name(), error.what());
  }
}

void flush_output() {
  errno = 0;
  const bool written =
      std::cout.flush().good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  const std::string reason = std::generic_category().message(errno);
  check(written, "standard output could not be written: {}", errno == 0 ? "disk full?" : reason);
}

int run_main(CLI::App& app, int count, char** arguments, const std::function<int()>& body) {
  start_process(app.get_name());
  return run_command_line(app, std::vector<std::string>(arguments + 1, arguments + count), body);
}

}  // namespace tessera
