// Results must not depend on the progress of streams and GPUs.
#pragma once

#include <functional>

#if defined(TESSERA_EMULATED)
#include "runtime/emulation/toolkit/emulated_device.h"
#endif

namespace tessera::test {

/// Calls `body` for many orders of progress. On the emulated GPU, work is done as late as possible,
/// at once, or as each of `seeds` seeds chooses, on one device and on several. In other builds calls
/// it once.
inline void for_every_progress(int seeds, const std::function<void()>& body) {
#if defined(TESSERA_EMULATED)
  using emulation::Progress;
  for (const int devices : {1, 3}) {
    emulation::DeviceOptions options = emulation::device_options();
    options.devices = devices;
    const auto run = [&](Progress progress, int seed) {
      options.progress = progress;
      options.seed = static_cast<std::uint64_t>(seed);
      const emulation::DeviceOptionsGuard guard(options);
      body();
    };
    run(Progress::lazy, 0);
    run(Progress::eager, 0);
    for (int seed = 1; seed <= seeds; ++seed) run(Progress::shuffled, seed);
  }
#else
  static_cast<void>(seeds);
  body();
#endif
}

}  // namespace tessera::test
