#include "tools/bench/gpu_log.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "runtime/text.h"

extern char** environ;

namespace tessera {
namespace {

std::string text_of(const Descriptor& file) {
  std::string text(
      static_cast<std::size_t>(std::max<off_t>(0, ::lseek(file.number(), 0, SEEK_END))), '\0');
  const ssize_t got = ::pread(file.number(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

}  // namespace

std::string nvidia_smi_name(const Device& device) {
  if (device.is_cpu()) return "";
  const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::vector<std::string_view> visible = split(list ? list : "", ',');
  const auto index = static_cast<std::size_t>(device.index);
  return index < visible.size() ? std::string(visible[index]) : std::to_string(index);
}

GpuLog::GpuLog(const std::string& gpu) : output_(::memfd_create("samples", MFD_CLOEXEC)) {
  // stdbuf: nvidia-smi writes every line at once, so that none is lost when it is ended.
  std::vector<std::string> words = {"stdbuf",
                                    "-oL",
                                    "nvidia-smi",
                                    "--id=" + gpu,
                                    fmt::format("--query-gpu={}", kSampleQuery),
                                    "--format=csv,noheader,nounits",
                                    "--loop-ms=100"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, output_.number(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output_.number(), STDERR_FILENO);
  if (::posix_spawnp(&process_, arguments[0], &actions, nullptr, arguments.data(), environ) != 0) {
    process_ = 0;
  }
  ::posix_spawn_file_actions_destroy(&actions);
}

void GpuLog::end() {
  if (process_ == 0) return;
  ::kill(process_, SIGTERM);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = 0;
}

GpuLog::Outcome GpuLog::stop() {
  const bool started = process_ != 0;
  end();
  const std::string text = text_of(output_);
  Outcome outcome{.samples = gpu_samples(text)};
  if (!outcome.samples.empty()) return outcome;
  outcome.reason = text.empty() ? (started ? "nvidia-smi took no sample" : "stdbuf does not start")
                                : text.substr(0, text.find('\n'));
  return outcome;
}

}  // namespace tessera
