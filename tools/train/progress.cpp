#include "tools/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tessera {
namespace {

constexpr int kBarWidth = 30;
constexpr auto kRedrawInterval = std::chrono::milliseconds(100);

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

Progress::Progress(ProgressMode mode, std::int64_t total_steps)
    : bar_(mode == ProgressMode::bar ||
           (mode == ProgressMode::automatic && isatty(STDOUT_FILENO) != 0)),
      total_steps_(total_steps),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  erase();
}

std::string Progress::bar(std::int64_t done, std::int64_t total, double elapsed_seconds,
                          float loss) {
  const double fraction =
      total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1.0;
  const int filled = static_cast<int>(fraction * kBarWidth);
  const double left =
      done > 0 ? elapsed_seconds / static_cast<double>(done) * static_cast<double>(total - done)
               : 0.0;
  return fmt::format("[{:#<{}}{:{}}] {:3.0f}%  {}/{}  loss {:.4f}  {} left", "", filled, "",
                     kBarWidth - filled, 100.0 * fraction, done, total, loss, clock_text(left));
}

void Progress::update(std::int64_t done, float loss) {
  if (!bar_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < kRedrawInterval && done < total_steps_) return;
  drawn_ = now;
  const std::chrono::duration<double> elapsed = now - start_;
  fmt::print("\r\033[K{}", bar(done, total_steps_, elapsed.count(), loss));
  std::fflush(stdout);
}

void Progress::log(std::string_view line) {
  erase();
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Progress::erase() const {
  if (!bar_) return;
  fmt::print("\r\033[K");
  std::fflush(stdout);
}

}  // namespace tessera
