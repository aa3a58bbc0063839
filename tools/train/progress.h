// What a person sees of a run: log lines, and on a terminal a progress bar under them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/config/config.h"

namespace tessera {

class Progress {
 public:
  Progress(ProgressMode mode, std::int64_t total_steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` steps are finished, the last with this loss: redraws the bar, at most ten times a
  /// second.
  void update(std::int64_t done, float loss);
  /// Prints a line that stays, above the bar.
  void log(std::string_view line);

  /// The bar's text: "[#####     ]  50%  1000/2000  loss 1.9876  0:35 left".
  static std::string bar(std::int64_t done, std::int64_t total, double elapsed_seconds, float loss);

 private:
  void erase() const;

  bool bar_;
  std::int64_t total_steps_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace tessera
