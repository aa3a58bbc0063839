// A GPU's clock, power and limits of the clock, as nvidia-smi lists them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The query of nvidia-smi that sample lines answer, with --format=csv,noheader,nounits. power.draw is
/// the mean of the last second on most GPUs.
inline constexpr std::string_view kSampleQuery = "clocks.sm,power.draw,clocks_event_reasons.active";

struct GpuSample {
  double sm_mhz = 0.0;
  double watts = 0.0;
  /// A bit for each reason (nvml.h, nvmlClocksEventReason...).
  std::uint64_t reasons = 0;
};

/// The samples of nvidia-smi's lines: "1635, 698.32, 0x0000000000000004". Other lines, and a last one
/// that has no end, are left out.
std::vector<GpuSample> gpu_samples(std::string_view lines);

/// Means over samples of a GPU at work.
struct GpuMeans {
  std::size_t samples = 0;
  double sm_mhz = 0.0;
  double watts = 0.0;
  /// The share of the samples with each reason: "sw_power_cap", "hw_thermal_slowdown", ...
  std::map<std::string, double> reasons;
};

/// All zero without samples. Idle samples, which nvidia-smi says have no work, are left out.
GpuMeans means_of(const std::vector<GpuSample>& samples);

}  // namespace tessera
