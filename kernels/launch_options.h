// How a GPU's kernels are launched.
#pragma once

#include "runtime/context.h"

namespace tessera {

struct LaunchOptions {
  /// May kernels begin before the launch ahead of them has ended (kernels/cuda/early_launch.h)?
  bool early = false;
};

/// The options of the calling thread's rank.
inline LaunchOptions& launch_options() {
  return context().state<LaunchOptions>();
}

}  // namespace tessera
