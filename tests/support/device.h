// The device that tests run on.
#pragma once

#include <cstdlib>
#include <string_view>

#include "runtime/backends.h"
#include "runtime/device.h"

namespace tessera::test {

/// Builds with the CUDA backend test that backend, on a GPU or emulated. With TESSERA_TEST_DEVICE=cpu
/// in the environment they test the CPU; CTest sets it for tests tagged [cpu].
inline const bool kOnGpu = [] {
  const char* asked = std::getenv("TESSERA_TEST_DEVICE");
  return kHasCuda && (asked == nullptr || std::string_view(asked) != "cpu");
}();

inline Device device() {
  return {kOnGpu ? DeviceType::cuda : DeviceType::cpu, 0};
}

}  // namespace tessera::test
