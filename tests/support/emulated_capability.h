// Chooses the emulated GPU of a test.
#pragma once

#include "runtime/emulation/toolkit/emulated_device.h"

namespace tessera::test {

/// Emulates a GPU of this compute capability for the scope. Ranks ask for it once, so they begin
/// within the scope.
struct Capability {
  emulation::DeviceOptionsGuard guard;

  explicit Capability(int capability) : guard(options(capability)) {}
  static emulation::DeviceOptions options(int capability) {
    emulation::DeviceOptions all = emulation::device_options();
    all.capability = capability;
    return all;
  }
};

}  // namespace tessera::test
