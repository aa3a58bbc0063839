#include "tools/data/table_source.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

#include "runtime/check.h"
#include "runtime/descriptor.h"
#include "tools/data/table_script.h"

extern char** environ;

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The output of a program that this one starts. The last line of its errors is the reason if it fails.
class ProgramSource : public ByteSource {
 public:
  /// `file`: that the program reads, for messages.
  ProgramSource(std::vector<std::string> words, std::string file)
      : file_(std::move(file)), errors_(::memfd_create("errors", MFD_CLOEXEC)) {
    std::array<int, 2> ends{};
    check(errors_.number() >= 0 && ::pipe2(ends.data(), O_CLOEXEC) == 0, "cannot read {}: {}",
          file_, std::generic_category().message(errno));
    output_ = std::make_unique<Descriptor>(ends[0]);
    const Descriptor input(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input.number(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, errors_.number(), STDERR_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int status =
        ::posix_spawnp(&process_, arguments[0], &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (status != 0) process_ = 0;
    check(status == 0,
          "{}: reading it needs {}, which does not start: {}; install Python and pyarrow", file_,
          words.front(), std::generic_category().message(status));
  }
  ~ProgramSource() override {
    if (process_ == 0) return;
    ::kill(process_, SIGKILL);
    wait();
  }
  ProgramSource(const ProgramSource&) = delete;
  ProgramSource& operator=(const ProgramSource&) = delete;

  std::size_t read(std::span<std::byte> bytes) override {
    ssize_t got = 0;
    do {
      got = ::read(output_->number(), bytes.data(), bytes.size());
    } while (got < 0 && errno == EINTR);
    check(got >= 0, "cannot read {}: {}", file_, std::generic_category().message(errno));
    if (got == 0 && process_ != 0) {
      const int status = wait();
      if (status != 0) fail("{}", reason(status));
    }
    return static_cast<std::size_t>(got);
  }
  /// Unknown before the end.
  std::int64_t consumed() const override { return 0; }

 private:
  int wait() {
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = 0;
    return status;
  }

  /// The last line that the program printed on standard error.
  std::string reason(int status) const {
    std::string text(4096, '\0');
    const off_t size = ::lseek(errors_.number(), 0, SEEK_END);
    const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(text.size()));
    const ssize_t got = ::pread(errors_.number(), text.data(), text.size(), begin);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    while (text.ends_with('\n')) text.pop_back();
    text.erase(0, text.rfind('\n') + 1);  // npos + 1 is 0
    if (WIFEXITED(status) && !text.empty()) return text;
    return fmt::format("{}: its reader in Python was ended by signal {}; is there enough memory?",
                       file_, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  }

  std::string file_;
  Descriptor errors_;
  std::unique_ptr<Descriptor> output_;
  pid_t process_ = 0;
};

}  // namespace

bool is_table(const fs::path& file) {
  const fs::path kind = file.extension();
  return kind == ".parquet" || kind == ".arrow" || kind == ".feather";
}

std::unique_ptr<ByteSource> make_table_source(const fs::path& file,
                                              const std::vector<std::string>& keys) {
  std::vector<std::string> words = {"python3", "-c", std::string(kFromParquetPy), file.string()};
  if (!keys.empty()) words.push_back(fmt::format("--keys={}", fmt::join(keys, ",")));
  return std::make_unique<ProgramSource>(std::move(words), file.string());
}

}  // namespace tessera
