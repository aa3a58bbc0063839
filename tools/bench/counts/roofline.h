// The time that counted work needs on a GPU.
//
// A kernel's roofline time is the larger of its bytes over the memory's rate and its FLOPs over the
// tensor cores'. Kernels do not reach either. The efficiency of a class of kernels is the rate that
// published kernels of the class have reached; the sources are in roofline.cpp.
#pragma once

#include <span>
#include <string_view>

namespace tessera {

/// Data sheets: 16-bit products added in f32, without sparsity; and memory.
struct Gpu {
  std::string_view name;
  double flops_per_second;
  double bytes_per_second;
};

/// H200, H100, A100 and RTX 4090.
std::span<const Gpu> gpus();

/// Parts of the data sheet's rates.
struct Efficiency {
  std::string_view kind;
  double of_flops, of_bytes;
};

/// `kernel` is a label (kernel_label.h); `backward`: launched in the backward pass.
Efficiency efficiency_of(std::string_view kernel, bool backward, double head_size);

/// Seconds.
double roofline_time(const Gpu& gpu, double flops, double bytes,
                     const Efficiency& efficiency = {"", 1.0, 1.0});

}  // namespace tessera
