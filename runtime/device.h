// Where a tensor's bytes live and where kernels on them run.
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

/// Of "cpu", "cuda:1", "cuda" (the first GPU) or "auto" (the first GPU if this build has the CUDA
/// backend and the machine a GPU, otherwise the CPU); nothing for any other text.
std::optional<Device> parse_device(std::string_view text);

}  // namespace tessera
