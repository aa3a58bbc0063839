// The machine's GPUs and their peak rates.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "runtime/dtype.h"

namespace tessera::cuda {

struct DeviceProperties {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int multiprocessors = 0;
  double clock_hz = 0.0;  // the highest; 0 if unknown
  std::size_t memory_bytes = 0;
  /// Compute capability: 9 and 0 for Hopper.
  int major = 0;
  int minor = 0;
};

/// GPUs of this machine; 0 if there is no driver.
int device_count();

/// Enables direct copies between a GPU and the GPUs that it has a link to. Without this, copies
/// between GPUs go through host memory. From then on cudaMalloc, cudaFree and their kin on one of them
/// may wait for the kernels of the others.
void link_to_other_devices(int index);

/// Whether ranks that are threads stand for processes, as in tests on emulated GPUs: the emulated NCCL
/// joins no processes.
bool threads_stand_for_processes();

/// Raises Error if there is no such GPU.
DeviceProperties device_properties(int index);

/// Dense FLOP/s of matrix products with f32 accumulation, by the vendor's data sheets: on tensor
/// cores in bf16 and f16, on the other cores in f32. No value for an architecture or a dtype that is
/// not in the table.
std::optional<double> peak_flops(const DeviceProperties& device, DType dtype);

}  // namespace tessera::cuda
