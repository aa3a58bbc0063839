#include "tools/bench/counts/roofline.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "tools/measure/sustained_rate.h"

namespace tessera {
namespace {

// Sources: the data sheets of H200 SXM and H100 SXM (2024), A100 80GB SXM (2021), and "NVIDIA Ada GPU
// Architecture" (2023), appendix A, table 2 (f32 accumulation is at half rate).
constexpr std::array kGpus = {
    Gpu{"H200", 989.4e12, 4.8e12, kH200SustainedRate.flops_per_second, kH200SustainedRate.source},
    Gpu{"H100", 989.4e12, 3.35e12},
    Gpu{"A100", 312.0e12, 2.039e12},
    Gpu{"4090", 165.2e12, 1.008e12},
};

/// A norm's bytes, over the memory's rate, for rows of up to `columns`.
struct NormRate {
  std::int64_t columns;
  double forward, backward;
  std::string_view source;
};
constexpr std::array kNormRates = {
    NormRate{1024, 0.43, 0.50, "in a step of gpt2 on an H200: 2.07 forward, 2.39 TB/s backward"},
    NormRate{2048, 0.80, 0.65,
             "in a step of llama3.2-1b on an H200: 3.82 forward, 3.10 TB/s backward"},
    NormRate{INT64_MAX, 0.79, 0.58,
             "with the residual, 8,192 x 4,096 on an H200: 3.77 forward, 2.81 TB/s backward"},
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

}  // namespace

std::vector<Gpu> gpus(double h200_sustained) {
  std::vector<Gpu> all(kGpus.begin(), kGpus.end());
  if (h200_sustained > 0.0) {
    all[0].sustained_flops_per_second = h200_sustained;
    all[0].sustained_source = "given";
  }
  return all;
}

// Rates that were reached on an H100 or H200, over their data sheets: tessera's own are in
// docs/gpu_results.md, with those of products alone and of copies. The backward pass of attention has
// seven products here where published rates count five: 7/5 of the rate in counted FLOPs.
Efficiency efficiency_of(const Gpu& gpu, ProductRate rate, std::string_view kernel, bool backward,
                         const TransformerShape& shape) {
  constexpr double kOthers = 0.85;
  if (has(kernel, "grouped")) {
    Efficiency ours = efficiency_of(gpu, rate, "cublasLt", backward, shape);
    ours.kind = "own product";
    ours.of_flops *= 0.855 * peak_of(kernel);
    ours.source =
        "0.855 of cuBLAS: gate and up in a step of llama3.2-1b on an H200, 661 of 774 TFLOP/s; the "
        "same part in 8 bits, where no rate is measured";
    return ours;
  }
  if (peak_of(kernel) > 1.0) {
    Efficiency of_16_bits = efficiency_of(gpu, rate, "cublasLt", backward, shape);
    of_16_bits.kind = "8-bit product";
    of_16_bits.of_flops *= peak_of(kernel);
    of_16_bits.source = "no measured rate: the part of the peak that 16-bit products keep";
    return of_16_bits;
  }
  if (has(kernel, "cublasLt")) {
    if (rate == ProductRate::sustained && gpu.sustained_flops_per_second > 0.0) {
      return {"product", gpu.sustained_flops_per_second / gpu.flops_per_second, kOthers,
              gpu.sustained_source};
    }
    return {"product", 0.72, kOthers, "cuBLAS, 4,096^3 on an H100: 716 of 989 TFLOP/s (fast.cu)"};
  }
  if (has(kernel, "attention") && !has(kernel, "statistics")) {
    if (shape.head_size <= 64) {
      return {
          "attention", backward ? 0.367 * 7.0 / 5.0 : 0.367, kOthers,
          "FlashAttention-3 on an H100, causal forward: 363 TFLOP/s (Shah et al. 2024, figure 5)"};
    }
    return {"attention", backward ? 0.479 * 7.0 / 5.0 : 0.597, kOthers,
            "cuDNN 9.19 on an H200, causal, 4,096 tokens: 591 forward, 474 TFLOP/s backward"};
  }
  if (has(kernel, "norm/") && !has(kernel, "gradient_norm")) {
    const NormRate& norm = *std::ranges::find_if(
        kNormRates, [&](const NormRate& one) { return shape.width <= one.columns; });
    return {"norm", 1.0, backward ? norm.backward : norm.forward, norm.source};
  }
  return {"memory", 1.0, kOthers, "RMSNorm by torch.compile on an H200: 4.18 of 4.8 TB/s"};
}

double peak_of(std::string_view kernel) {
  return kernel.ends_with(", 8 bits") ? 2.0 : 1.0;
}

bool is_product(const Efficiency& efficiency) {
  return efficiency.kind.ends_with("product");
}

double roofline_time(const Gpu& gpu, double flops, double bytes, const Efficiency& efficiency) {
  return std::max(flops / (gpu.flops_per_second * efficiency.of_flops),
                  bytes / (gpu.bytes_per_second * efficiency.of_bytes));
}

}  // namespace tessera
