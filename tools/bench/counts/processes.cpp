#include "tools/bench/counts/processes.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <map>
#include <thread>

#include "runtime/check.h"

namespace tessera {
namespace {

/// A job that runs, and the file for its text.
struct Job {
  std::size_t number;
  std::FILE* file;
};

[[noreturn]] void run_job(const std::function<std::string(std::size_t)>& job, const Job& own) {
  int status = 1;
  try {
    const std::string text = job(own.number);
    const bool written = std::fwrite(text.data(), 1, text.size(), own.file) == text.size();
    if (written && std::fflush(own.file) == 0) status = 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "\n{}\n", error.what());
  }
  _exit(status);
}

std::string take_text(std::FILE* file) {
  std::string text;
  std::array<char, 4096> buffer;
  std::rewind(file);
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file)) {
    text.append(buffer.data(), count);
  }
  std::fclose(file);
  return text;
}

}  // namespace

// The end of this process ends its copies: also the others after a failure.
std::vector<std::string> run_in_processes(std::size_t jobs,
                                          const std::function<std::string(std::size_t)>& job,
                                          const std::function<void(std::size_t)>& progress) {
  const std::size_t most = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::string> texts(jobs);
  std::map<pid_t, Job> running;
  for (std::size_t left = jobs, ended = 0; ended < jobs;) {
    if (left > 0 && running.size() < most) {
      const Job started{--left, std::tmpfile()};
      check(started.file != nullptr, "no temporary file for a process's text");
      const pid_t process = fork();
      check(process >= 0, "no process for a job");
      if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_job(job, started);
      }
      running.emplace(process, started);
      continue;
    }
    int status = 0;
    const auto done = running.find(wait(&status));
    if (done == running.end()) continue;
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "job {} of {} failed",
          done->second.number + 1, jobs);
    texts[done->second.number] = take_text(done->second.file);
    running.erase(done);
    progress(++ended);
  }
  return texts;
}

}  // namespace tessera
