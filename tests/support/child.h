// Runs code that is expected to end its process.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace tessera::test {

struct Child {
  int status = 0;
  std::string output;  // standard output and error

  bool failed() const { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; }
};

/// Runs `body()` in a copy of this process and waits for its end. Only the calling thread is
/// copied, so no other thread may hold a lock that the body needs.
template <typename Body>
Child run_child(Body body) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t process = fork();
  if (process == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    // Without this the child, too, would print the test runner's report of a crash.
    for (const int signal : {SIGSEGV, SIGABRT}) std::signal(signal, SIG_DFL);
    try {
      body();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  Child child;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;) {
    child.output.append(buffer, static_cast<std::size_t>(count));
  }
  close(ends[0]);
  waitpid(process, &child.status, 0);
  return child;
}

}  // namespace tessera::test
