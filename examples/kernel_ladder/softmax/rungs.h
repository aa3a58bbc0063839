// The rungs of the ladder of softmaxes, in files of their names.
#pragma once

#include <cstdint>

#include "examples/kernel_ladder/rung.h"

namespace tessera::kernel_ladder::softmax {

/// y = exp(x - maximum) / sum of exp(x - maximum) in every row of x [N, C], and a loss for each row:
/// -log y at the column target[n]. So a language model's logits become its loss.
struct Softmax {
  std::int64_t N, C;
  const float* x;
  const std::int32_t* target;
  float* y;
  float* loss;
};

void three_passes(const Softmax& p);
void online(const Softmax& p);
void vectors(const Softmax& p);
void fused(const Softmax& p);
void avx512(const Softmax& p);
void threads(const Softmax& p);

struct SoftmaxRung : Rung<Softmax> {
  /// Does the rung write y, or the losses alone?
  bool writes_y = true;
};

inline constexpr SoftmaxRung kRungs[] = {
    {{"three_passes", three_passes}},
    {{"online", online}},
    {{"vectors", vectors}},
    {{"fused", fused}, false},
    {{"avx512", avx512, cpu::Isa::avx512}, false},
    {{"threads", threads, cpu::Isa::avx512, true}, false},
};

}  // namespace tessera::kernel_ladder::softmax
