// Devices: the CPU and the machine's GPUs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

enum class DeviceType { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  bool is_cpu() const { return type == DeviceType::cpu; }
  bool operator==(const Device&) const = default;
};

/// "cpu" or "cuda:0".
std::string to_string(const Device& device);

/// Reads "cpu", "cuda:1", "cuda" (the first GPU) or "auto". "auto" is the first GPU if this build has
/// the CUDA backend and the machine has a GPU; otherwise it is the CPU. No value for other texts.
std::optional<Device> parse_device(std::string_view text);

}  // namespace tessera
