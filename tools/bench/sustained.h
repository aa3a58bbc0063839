// Repeats work without a pause, as training does, and watches the GPU meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/bench/gpu_samples.h"

namespace tessera {

struct Sustained {
  std::int64_t runs = 0;
  double seconds = 0.0;
  /// All zero without a GPU.
  GpuMeans gpu;
  /// Without samples: the reason, in one line.
  std::string reason;
};

/// Monotonic seconds.
double steady_seconds();

/// Calls `run` for a second, so that the GPU's clock settles, and then for `seconds` more, at least once:
/// these calls count. `finish` waits for their work. `gpu`: nvidia_smi_name() of the GPU to watch;
/// empty: none.
Sustained sustain(const std::function<void()>& run, const std::function<void()>& finish,
                  double seconds, const std::string& gpu,
                  const std::function<double()>& now = steady_seconds);

}  // namespace tessera
