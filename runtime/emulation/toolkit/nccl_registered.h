// The windows of the emulated NCCL, for tests.
#pragma once

#include <cstddef>

namespace tessera::emulation {

/// Windows that are registered with communicators, of all ranks.
std::size_t registered_windows();

}  // namespace tessera::emulation
