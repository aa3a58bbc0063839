// The rate that matrix products keep in training.
//
// A product that is timed alone has a higher clock than in steps without a pause, where the GPU is at its
// limit of power. Predictions of steps need the rate in steps.
#pragma once

#include <string_view>

namespace tessera {

/// 16-bit products that are added in f32.
struct SustainedRate {
  double flops_per_second;
  std::string_view source;
};

inline constexpr SustainedRate kH200SustainedRate = {
    636e12,
    "computed, not measured: the FLOPs of products over the time of a step without all else: "
    "gpt2 636, llama3.2-1b 642, llama3-8b 631 TFLOP/s (docs/gpu_results.md)"};

}  // namespace tessera
