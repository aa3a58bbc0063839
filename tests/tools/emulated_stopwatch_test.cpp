// The flush before a timed kernel, on the emulated GPU.
#include <catch2/catch.hpp>

#include "kernels/add/op.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "tests/support/rank.h"
#include "tools/bench/stopwatch.h"

namespace tessera {

TEST_CASE("caches are flushed by a kernel that reads, never by a fill") {
  const test::Rank rank;
  const Stopwatch stopwatch(/*runs=*/1, /*flushed_bytes=*/1 << 20);
  context().compute_stream().synchronize();
  emulation::start_launch_list();
  stopwatch.in_turns({[] {}});
  context().compute_stream().synchronize();
  int flushes = 0;
  for (const emulation::LaunchRecord& launch : emulation::take_launch_list()) {
    CAPTURE(launch.kernel);
    CHECK(launch.kernel.find("Memset") == std::string::npos);
    flushes += launch.file.find("kernels/bias/") != std::string::npos ? 1 : 0;
  }
  CHECK(flushes == 3);  // two warm-ups and a run
}

}  // namespace tessera
