// Where a tensor's bytes live and where kernels on them run.
#pragma once

#include <string>

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

}  // namespace tessera
