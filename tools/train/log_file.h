// The file log.txt of a run folder: the lines of the console, with date and time.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace tessera {

/// Local time as "17:20:01", and as "2026-11-22 17:20:01"; UTC as "2026-11-22T16:20:01Z".
std::string clock_now();
std::string date_and_clock_now();
std::string utc_now();

class LogFile {
 public:
  /// Appends, so a run that continues has one log. Raises Error if the file cannot be written.
  explicit LogFile(const std::filesystem::path& folder);
  /// Writes "2026-11-22 17:20:01  line". Raises Error if the disk is full.
  void write(std::string_view line);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace tessera
