#include "runtime/cuda/device.h"

#include "runtime/check.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/status.h"

#if defined(TESSERA_EMULATED)
#include "runtime/emulation/toolkit/nccl_model.h"
#endif

namespace tessera::cuda {
namespace {

/// FLOPs per clock and multiprocessor. A multiply-add is two.
struct Rate {
  double tensor_16_bit;
  double f32;
  /// The boost clock of 16-bit tensor work over the highest clock.
  double tensor_clock = 1.0;
};

bool contains(const std::string& name, std::string_view part) {
  return name.find(part) != name.npos;
}

/// GeForce cards and the L40 accumulate in f32 at half the rate of their tensor cores.
bool is_half_rate(const std::string& name) {
  const bool is_l40 = contains(name, "L40") && !contains(name, "L40S");
  return contains(name, "GeForce") || contains(name, "TITAN") || is_l40;
}

// Sources: NVIDIA's "A100 Tensor Core GPU Architecture" (2020), table 1; "Ampere GA102 GPU
// Architecture" (2021), appendix A and table 9; "Ada GPU Architecture" (2023), appendix A and B;
// "H100 Tensor Core GPU Architecture" (2022), table 3, which gives H100s a lower boost clock for
// tensor work (1830 of 1980 MHz on SXM5, 1620 of 1755 MHz on PCIe: both 0.924); "NVIDIA Blackwell
// Architecture Technical Brief" (2024), HGX B200, 2,250 TFLOP/s, which are 1856 of 1965 MHz; "NVIDIA RTX
// Blackwell GPU Architecture" (2025), appendix A.
std::optional<Rate> rate_of(const DeviceProperties& device) {
  const double of_full_rate = is_half_rate(device.name) ? 0.5 : 1.0;
  switch (10 * device.major + device.minor) {
    case 80:
      return Rate{2048, 128};
    case 86:
    case 89:
    case 120:
      return Rate{1024 * of_full_rate, 256};
    case 90:
      return Rate{4096, 256, 0.924};
    case 100:
      return Rate{8192, 256, 0.9445};
    default:
      return std::nullopt;
  }
}

}  // namespace

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void link_to_other_devices(int index) {
  check_status(cudaSetDevice(index), "cudaSetDevice");
  for (int other = 0; other < device_count(); ++other) {
    int possible = 0;
    if (other == index) continue;
    check_status(cudaDeviceCanAccessPeer(&possible, index, other), "cudaDeviceCanAccessPeer");
    if (possible == 0) continue;
    const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();  // otherwise the next call reports it
    } else {
      check_status(status, "cudaDeviceEnablePeerAccess");
    }
  }
}

bool threads_stand_for_processes() {
#if defined(TESSERA_EMULATED)
  return emulation::nccl_model().takes_threads;
#else
  return false;
#endif
}

void return_to_device(int index) noexcept {
  cudaSetDevice(index);
}

void select_device(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    fail("device cuda:{} is not available: no GPU was found ({}); use device 'cpu'", index,
         cudaGetErrorString(status));
  }
  check(0 <= index && index < count,
        "device cuda:{} is not available: this machine's GPUs are numbered 0 to {}", index,
        count - 1);
  check_status(cudaSetDevice(index), "cudaSetDevice");
}

DeviceProperties device_properties(int index) {
  cudaDeviceProp properties{};
  check_status(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  int kilohertz = 0;
  check_status(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, index),
               "cudaDeviceGetAttribute");
  return {.name = properties.name,
          .multiprocessors = properties.multiProcessorCount,
          .clock_hz = 1e3 * kilohertz,
          .memory_bytes = properties.totalGlobalMem,
          .major = properties.major,
          .minor = properties.minor};
}

std::optional<double> peak_flops(const DeviceProperties& device, DType dtype) {
  const std::optional<Rate> rate = rate_of(device);
  if (!rate || device.clock_hz == 0.0) return std::nullopt;
  const double clocks = device.multiprocessors * device.clock_hz;
  switch (dtype) {
    case DType::f32:
      return clocks * rate->f32;
    case DType::bf16:
    case DType::f16:
      return clocks * rate->tensor_clock * rate->tensor_16_bit;
    default:
      return std::nullopt;
  }
}

}  // namespace tessera::cuda
