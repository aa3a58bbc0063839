#include "tools/bench/counts/roofline.h"

#include <algorithm>
#include <array>

namespace tessera {
namespace {

// Sources: the data sheets of H200 SXM and H100 SXM (2024), A100 80GB SXM (2021), and "NVIDIA Ada GPU
// Architecture" (2023), appendix A, table 2 (f32 accumulation is at half rate).
constexpr std::array kGpus = {
    Gpu{"H200", 989.4e12, 4.8e12},
    Gpu{"H100", 989.4e12, 3.35e12},
    Gpu{"A100", 312.0e12, 2.039e12},
    Gpu{"4090", 165.2e12, 1.008e12},
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

}  // namespace

std::span<const Gpu> gpus() {
  return kGpus;
}

// Rates that were reached on an H100 or H200, over their data sheets:
//   products    cuBLAS, 4,096^3 on an H100: 716 of 989 TFLOP/s (fast.cu)
//   attention   cuDNN 9.19 on an H200, causal, 4,096 tokens, heads of 128: 591 forward, 474 backward;
//               on an H100, heads of 64: 363 forward (FlashAttention-3, figure 5). The backward pass here
//               has seven products where these rates count five: 7/5 of the rate in counted FLOPs. No
//               causal rate is published for heads of 64 backward: the forward one is taken.
//   norms       cuDNN 9.19 on an H200, RMSNorm of 16,384 x 4,096: 3.71 forward, 3.80 backward of 4.8 TB/s
//   others      the RMSNorm that torch.compile makes reaches 4.18 of 4.8 TB/s on an H200; 0.85 is taken
Efficiency efficiency_of(std::string_view kernel, bool backward, double head_size) {
  constexpr double kOthers = 0.85;
  if (has(kernel, "cublasLt") || has(kernel, "grouped")) return {"product", 0.72, kOthers};
  if (has(kernel, "attention") && !has(kernel, "statistics")) {
    const double forward_rate = head_size > 64 ? 0.597 : 0.367;
    const double backward_rate = (head_size > 64 ? 0.479 : 0.367) * 7.0 / 5.0;
    return {"attention", backward ? backward_rate : forward_rate, kOthers};
  }
  if (has(kernel, "norm/") && !has(kernel, "gradient_norm")) {
    return {"norm", 1.0, backward ? 0.79 : 0.77};
  }
  return {"memory", 1.0, kOthers};
}

double roofline_time(const Gpu& gpu, double flops, double bytes, const Efficiency& efficiency) {
  return std::max(flops / (gpu.flops_per_second * efficiency.of_flops),
                  bytes / (gpu.bytes_per_second * efficiency.of_bytes));
}

}  // namespace tessera
