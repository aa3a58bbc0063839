// The device that tests run on: the one this build is for.
#pragma once

#include <cstdlib>
#include <string_view>

#include "runtime/backends.h"
#include "runtime/device.h"

namespace tessera::test {

/// Builds with the CUDA backend test it, on a GPU or emulated, unless the environment says
/// TESSERA_TEST_DEVICE=cpu: so CTest runs the tests tagged [cpu], and any other on request.
inline const bool kOnGpu = [] {
  const char* asked = std::getenv("TESSERA_TEST_DEVICE");
  return kHasCuda && (asked == nullptr || std::string_view(asked) != "cpu");
}();

inline Device device() {
  return {kOnGpu ? DeviceType::cuda : DeviceType::cpu, 0};
}

}  // namespace tessera::test
