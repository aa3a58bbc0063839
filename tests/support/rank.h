// A context to run tests in: construct one at the top of a test case.
#pragma once

#include "kernels/options.h"
#include "runtime/context.h"
#include "tests/support/device.h"

namespace tessera::test {

struct Rank {
  RankContext context;
  ContextGuard guard;

  explicit Rank(int threads = 2, std::uint64_t seed = 1)
      : context({.device = device(), .threads = threads, .seed = seed}), guard(context) {
#if defined(TESSERA_EMULATED)
    kernel_options().early_launch = true;  // the emulator checks their waits
#endif
  }
};

}  // namespace tessera::test
