#include "tools/bench/gpu_samples.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "runtime/text.h"

namespace tessera {
namespace {

constexpr std::uint64_t kIdle = 0x1;

// The names are those of nvidia-smi's fields, clocks_event_reasons.NAME.
constexpr std::array<std::pair<std::uint64_t, const char*>, 8> kReasons = {
    {{0x2, "applications_clocks_setting"},
     {0x4, "sw_power_cap"},
     {0x8, "hw_slowdown"},
     {0x10, "sync_boost"},
     {0x20, "sw_thermal_slowdown"},
     {0x40, "hw_thermal_slowdown"},
     {0x80, "hw_power_brake_slowdown"},
     {0x100, "display_clock_setting"}}};

/// The whole text as a number. `base`: std::chars_format, or a base of integers.
template <typename Number, typename Base>
bool read(std::string_view text, Number& number, Base base) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number, base);
  return result.ec == std::errc() && result.ptr == end;
}

std::optional<GpuSample> sample_of(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, ',');
  GpuSample sample;
  const bool complete = fields.size() == 3 && fields[2].starts_with("0x") &&
                        read(fields[0], sample.sm_mhz, std::chars_format::fixed) &&
                        read(fields[1], sample.watts, std::chars_format::fixed) &&
                        read(fields[2].substr(2), sample.reasons, 16);
  return complete ? std::optional(sample) : std::nullopt;
}

}  // namespace

std::vector<GpuSample> gpu_samples(std::string_view lines) {
  std::vector<GpuSample> samples;
  for (auto end = lines.find('\n'); end != lines.npos; end = lines.find('\n')) {
    if (const auto sample = sample_of(lines.substr(0, end))) samples.push_back(*sample);
    lines.remove_prefix(end + 1);
  }
  return samples;
}

GpuMeans means_of(const std::vector<GpuSample>& samples) {
  GpuMeans means;
  for (const GpuSample& sample : samples) {
    if (sample.reasons & kIdle) continue;
    means.samples += 1;
    means.sm_mhz += sample.sm_mhz;
    means.watts += sample.watts;
    for (const auto& [bit, name] : kReasons) {
      if (sample.reasons & bit) means.reasons[name] += 1.0;
    }
  }
  if (means.samples == 0) return means;
  const auto count = static_cast<double>(means.samples);
  means.sm_mhz /= count;
  means.watts /= count;
  for (auto& [name, share] : means.reasons) share /= count;
  return means;
}

}  // namespace tessera
