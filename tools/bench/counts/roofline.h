// The time that counted work needs on a GPU.
//
// A kernel's roofline time is the larger of its bytes over the memory's rate and its FLOPs over the
// tensor cores'. Kernels do not reach either. The efficiency of a class of kernels is the rate that
// kernels of the class have reached, tessera's or published ones, and its source. Products have two rates:
// `burst`, alone on a cool GPU, and `sustained`, in steps without a pause
// (tools/measure/sustained_rate.h).
#pragma once

#include <string_view>
#include <vector>

#include "models/transformer_shape.h"

namespace tessera {

/// Data sheets: 16-bit products added in f32, without sparsity; and memory.
struct Gpu {
  std::string_view name;
  double flops_per_second;
  double bytes_per_second;
  /// The sustained rate of products, and its source. 0 if it is unknown: then the burst rate is taken.
  double sustained_flops_per_second = 0.0;
  std::string_view sustained_source;
};

/// H200, H100, A100 and RTX 4090. `h200_sustained`: FLOP/s that were measured since; 0: kH200SustainedRate.
std::vector<Gpu> gpus(double h200_sustained = 0.0);

enum class ProductRate { burst, sustained };

/// Parts of the data sheet's rates, and the kernel that reached them. `of_flops` is a part of the 16-bit peak: 8-bit
/// products may exceed 1.
struct Efficiency {
  std::string_view kind;
  double of_flops, of_bytes;
  std::string_view source;
};

/// `kernel` is a label (kernel_label.h); `backward`: launched in the backward pass.
Efficiency efficiency_of(const Gpu& gpu, ProductRate rate, std::string_view kernel, bool backward,
                         const TransformerShape& shape);
/// The peak of a kernel's products over that of 16-bit ones: 2 in 8 bits.
double peak_of(std::string_view kernel);
/// Is it a product, a library's or tessera's?
bool is_product(const Efficiency& efficiency);

/// Seconds.
double roofline_time(const Gpu& gpu, double flops, double bytes,
                     const Efficiency& efficiency = {"", 1.0, 1.0, ""});

}  // namespace tessera
