#include "runtime/device.h"

#include <charconv>

#include "runtime/backends.h"
#include "runtime/cuda/device.h"

namespace tessera {
namespace {

constexpr std::string_view kNumbered = "cuda:";

bool has_gpu() {
  if constexpr (kHasCuda) return cuda::device_count() > 0;
  return false;
}

}  // namespace

std::string to_string(const Device& device) {
  return device.is_cpu() ? "cpu" : std::string(kNumbered) + std::to_string(device.index);
}

std::optional<Device> parse_device(std::string_view text) {
  if (text == "cpu") return Device{};
  if (text == "cuda") return Device{DeviceType::cuda, 0};
  if (text == "auto") return Device{has_gpu() ? DeviceType::cuda : DeviceType::cpu, 0};
  if (!text.starts_with(kNumbered)) return std::nullopt;
  const std::string_view number = text.substr(kNumbered.size());
  Device device{DeviceType::cuda, 0};
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), device.index);
  const bool whole = error == std::errc() && end == number.data() + number.size();
  return whole && device.index >= 0 ? std::optional(device) : std::nullopt;
}

}  // namespace tessera
