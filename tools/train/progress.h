// The terminal output of a run: log lines, and on a terminal a progress bar below them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/config/config.h"

namespace tessera {

/// "1:02", "2:45:00".
std::string clock_text(double seconds);

class Progress {
 public:
  /// `automatic` draws a bar if standard output is a terminal of this process. Under a launcher it
  /// prints lines only: mpirun gives its processes a terminal even if its own output is a file.
  Progress(ProgressMode mode, std::int64_t total_steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Redraws the bar, at most ten times a second. `done` steps are finished; the last had this loss
  /// and took `step_ms`.
  void update(std::int64_t done, float loss, double step_ms);
  /// Prints a line that stays, above the bar.
  void log(std::string_view line);

  /// The system's reason if standard output could not be written, else empty. After a failure text
  /// is dropped.
  const std::string& failure() const { return failure_; }

  /// "[#####     ]  50%  1000/2000  loss 1.9876  0:35 left", in at most `columns` columns: a narrow
  /// terminal gets a shorter bar, then fewer words.
  static std::string bar(std::int64_t done, std::int64_t total, double seconds_left, float loss,
                         int columns);

 private:
  void write(std::string_view text);

  bool bar_;
  std::int64_t total_steps_;
  /// Average of recent steps; evaluations do not count.
  double step_ms_ = 0.0;
  std::chrono::steady_clock::time_point drawn_;
  std::string failure_;
};

}  // namespace tessera
