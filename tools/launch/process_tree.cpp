#include "tools/launch/process_tree.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <thread>

#include "runtime/check.h"
#include "runtime/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Entry {
  char state;
  pid_t parent;
};

/// From /proc/PID/stat: "12 (name) S 1 ...". The name may hold anything. None, if the process is gone.
std::optional<Entry> entry_of(const fs::path& folder) {
  std::string text;
  try {
    text = read_text_file(folder / "stat");
  } catch (const Error&) {
    return std::nullopt;
  }
  const std::size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos || name_end + 4 >= text.size()) return std::nullopt;
  pid_t parent = 0;
  const char* const begin = text.data() + name_end + 4;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), parent);
  if (error != std::errc()) return std::nullopt;
  return Entry{text[name_end + 2], parent};
}

/// Calls nothing but functions that are safe between fork and exec.
[[noreturn]] void become(char* const* arguments, const char* output, pid_t parent, int problem) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  const int file =
      *output == '\0' ? -1 : ::open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const bool has_output = *output == '\0' || file >= 0;
  for (const int number : {STDOUT_FILENO, STDERR_FILENO}) {
    if (file >= 0) ::dup2(file, number);
  }
  for (const int number : {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM}) std::signal(number, SIG_DFL);
  // The parent may have died before it could be watched.
  if (has_output && ::getppid() == parent) ::execv(arguments[0], arguments);
  const int code = errno;
  [[maybe_unused]] const auto written = ::write(problem, &code, sizeof code);
  ::_exit(127);
}

/// Whether orphans of the processes below this one become its children.
void adopt_orphans(bool adopts) {
  ::prctl(PR_SET_CHILD_SUBREAPER, adopts ? 1 : 0);
}

/// Starts a command; see ProcessTree.
pid_t start(const ProcessTree::Command& command, const std::string& output) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  check(::pipe2(ends, O_CLOEXEC) == 0, "cannot start {}: {}", command[0],
        std::generic_category().message(errno));
  const pid_t own = ::getpid();
  const pid_t process = ::fork();
  if (process == 0) become(arguments.data(), output.c_str(), own, ends[1]);
  ::close(ends[1]);
  int problem = process < 0 ? errno : 0;
  // Nothing to read: exec has closed the other end.
  [[maybe_unused]] const auto count = ::read(ends[0], &problem, sizeof problem);
  ::close(ends[0]);
  if (problem == 0) return process;
  if (process > 0) ::waitpid(process, nullptr, 0);
  fail("cannot start {}: {}", command[0], std::generic_category().message(problem));
}

/// Takes the status of a child that has ended, so that it does not stay as a zombie.
void reap(const std::vector<pid_t>& processes) {
  for (const pid_t process : processes) ::waitpid(process, nullptr, WNOHANG);
}

}  // namespace

std::vector<pid_t> descendants_of(pid_t process) {
  std::multimap<pid_t, pid_t> children;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", code)) {
    const std::string name = entry.path().filename();
    pid_t child = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), child).ec != std::errc()) continue;
    if (const auto found = entry_of(entry.path())) children.emplace(found->parent, child);
  }
  std::vector<pid_t> found = {process};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

bool has_ended(pid_t process) {
  const auto entry = entry_of(fs::path("/proc") / std::to_string(process));
  return !entry || entry->state == 'Z';
}

ProcessTree::ProcessTree() {
  adopt_orphans(true);
}

ProcessTree::ProcessTree(const std::vector<Command>& commands, const std::string& output)
    : ProcessTree() {
  for (const Command& command : commands) processes_.push_back({start(command, output)});
}

ProcessTree::~ProcessTree() {
  kill();
  adopt_orphans(false);
}

std::optional<int> ProcessTree::poll() {
  bool all = true;
  for (Process& process : processes_) {
    int status = 0;
    if (!process.status && ::waitpid(process.id, &status, WNOHANG) == process.id) {
      process.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (process.status != 0 && !failure_) failure_ = process.status;
    }
    all = all && process.status;
  }
  return failure_ || !all ? failure_ : 0;
}

bool ProcessTree::leaves_zombies() const {
  std::vector<pid_t> below;
  for (const Process& process : processes_) {
    if (process.status) continue;
    const std::vector<pid_t> found = descendants_of(process.id);
    below.insert(below.end(), found.begin(), found.end());
  }
  return !below.empty() && std::all_of(below.begin(), below.end(), has_ended);
}

void ProcessTree::signal(int number) const {
  for (const Process& process : processes_) {
    if (!process.status) ::kill(process.id, number);
  }
}

void ProcessTree::kill() {
  // Processes may start others until they are gone, and those of an ended parent become our own.
  for (;;) {
    std::vector<pid_t> left = descendants_of(::getpid());
    poll();
    for (const Process& process : processes_) {
      if (process.status) std::erase(left, process.id);
    }
    if (left.empty()) return;
    for (const pid_t process : left) ::kill(process, SIGKILL);
    for (const Process& process : processes_) std::erase(left, process.id);
    reap(left);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::string name_of_signal(int number) {
  const char* const name = ::sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

}  // namespace tessera
