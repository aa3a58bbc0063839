#include "tools/train/log_file.h"

#include <fmt/chrono.h>

#include "runtime/check.h"

namespace tessera {

std::string clock_now() {
  return fmt::format("{:%H:%M:%S}", fmt::localtime(std::time(nullptr)));
}

std::string date_and_clock_now() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)));
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

LogFile::LogFile(const std::filesystem::path& folder)
    : path_(folder / "log.txt"), file_(path_, std::ios::app) {
  check(file_.good(), "{}: cannot be written", path_.string());
}

void LogFile::write(std::string_view line) {
  file_ << date_and_clock_now() << "  " << line << '\n' << std::flush;
  check(file_.good(), "{}: writing failed; is the disk full?", path_.string());
}

}  // namespace tessera
