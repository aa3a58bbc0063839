// The ladders that bench_ladder knows.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/device.h"

namespace tessera::kernel_ladder {

/// A ladder of kernels for one operation.
struct Ladder {
  const char* name;
  /// The numbers of a shape, such as "M,N,K".
  const char* sizes;
  std::vector<std::int64_t> shape;
  /// Times the rungs and the libraries, `runs` times each, and prints a table.
  void (*time)(const std::vector<std::int64_t>& shape, int runs);
  /// Prints the rungs' errors at a small shape.
  void (*check)();
  DeviceType device = DeviceType::cpu;
};

Ladder matmul_ladder();
Ladder norm_ladder();
Ladder softmax_ladder();
Ladder attention_ladder();
Ladder hopper_ladder();  // in builds with a GPU

}  // namespace tessera::kernel_ladder
