#include "tools/train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "sharding/comm/launcher.h"

namespace tessera {
namespace {

constexpr int kWidestBar = 30;
constexpr int kNarrowestBar = 5;
constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr std::string_view kErase = "\r\033[K";
/// The weight of the last step in the average.
constexpr double kLastStep = 0.1;

/// The width of the terminal now; a person may change it at any time.
int columns_of_terminal() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

bool draws_bar(ProgressMode mode) {
  if (mode != ProgressMode::automatic) return mode == ProgressMode::bar;
  return find_launch().kind == Launch::Kind::none && isatty(STDOUT_FILENO) != 0;
}

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Progress::Progress(ProgressMode mode, std::int64_t total_steps)
    : bar_(draws_bar(mode)), total_steps_(total_steps) {}

Progress::~Progress() {
  if (bar_) write(kErase);
}

std::string Progress::bar(std::int64_t done, std::int64_t total, double seconds_left, float loss,
                          int columns) {
  const double share =
      total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1.0;
  const std::string steps = fmt::format("{:3.0f}%  {}/{}", 100.0 * share, done, total);
  const std::string left = fmt::format("  {} left", clock_text(seconds_left));
  const std::string words = steps + fmt::format("  loss {:.4f}", loss) + left;
  const int room = columns - static_cast<int>(words.size()) - 3;  // brackets and a space
  if (room < kNarrowestBar) {
    const std::string& shorter = static_cast<int>(words.size()) <= columns ? words : steps + left;
    return shorter.substr(0, static_cast<std::size_t>(std::max(0, columns)));
  }
  const int width = std::min(kWidestBar, room);
  const int filled = static_cast<int>(share * width);
  return fmt::format("[{:#<{}}{:{}}] {}", "", filled, "", width - filled, words);
}

void Progress::update(std::int64_t done, float loss, double step_ms) {
  if (!bar_) return;
  step_ms_ = step_ms_ == 0.0 ? step_ms : step_ms_ + kLastStep * (step_ms - step_ms_);
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < kRedrawInterval && done < total_steps_) return;
  drawn_ = now;
  const double left = 1e-3 * step_ms_ * static_cast<double>(total_steps_ - done);
  // A terminal wraps a line that fills its last column.
  const int columns = columns_of_terminal() - 1;
  write(std::string(kErase) + bar(done, total_steps_, left, loss, columns));
}

void Progress::log(std::string_view line) {
  write(fmt::format("{}{}\n", bar_ ? kErase : "", line));
}

void Progress::write(std::string_view text) {
  if (!failure_.empty()) return;
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) failure_ = std::generic_category().message(errno);
}

}  // namespace tessera
