// Samples of a GPU every 100 ms, by nvidia-smi in a separate process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/descriptor.h"
#include "runtime/device.h"
#include "tools/bench/gpu_samples.h"

namespace tessera {

/// The GPU's number for nvidia-smi, or its UUID, as CUDA_VISIBLE_DEVICES has it. Empty for the CPU.
std::string nvidia_smi_name(const Device& device);

class GpuLog {
 public:
  /// Starts nvidia-smi. `gpu`: nvidia_smi_name().
  explicit GpuLog(const std::string& gpu);
  ~GpuLog() { end(); }
  GpuLog(const GpuLog&) = delete;
  GpuLog& operator=(const GpuLog&) = delete;

  struct Outcome {
    std::vector<GpuSample> samples;
    /// Without samples: one line with the reason, by nvidia-smi or by the system.
    std::string reason;
  };
  /// Ends nvidia-smi.
  Outcome stop();

 private:
  void end();

  Descriptor output_;
  pid_t process_ = 0;
};

}  // namespace tessera
