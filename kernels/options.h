// How kernels are launched.
#pragma once

#include "runtime/context.h"

namespace tessera {

struct KernelOptions {
  /// May kernels begin before the launch ahead of them has ended (kernels/cuda/early_launch.h)?
  bool early_launch = false;
};

/// The options of the calling thread's rank.
inline KernelOptions& kernel_options() {
  return context().state<KernelOptions>();
}

}  // namespace tessera
