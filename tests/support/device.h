// The device that this build's tests run on: the one it was built for.
#pragma once

#include "runtime/backends.h"
#include "runtime/device.h"

namespace tessera::test {

/// The CPU; in builds with the CUDA backend the (emulated) GPU.
inline Device device() {
  return {kHasCuda ? DeviceType::cuda : DeviceType::cpu, 0};
}

}  // namespace tessera::test
