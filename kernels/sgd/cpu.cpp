#include "kernels/cpu/numeric.h"
#include "kernels/sgd/factors.h"
#include "runtime/threads.h"

namespace tessera::cpu {
namespace {

// As in adamw, every multiply-add is written as fma, so that an element's bits do not depend on
// whether it falls into the loop's vector body or into its tail.
template <typename T>
void update_plain(float* __restrict__ p, const T* __restrict__ gradient, std::int64_t count,
                  const SgdFactors f) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = std::fma(f.weight_decay, p[i], load(gradient[i]) * f.gradient_scale);
    p[i] = std::fma(-f.learning_rate, g, p[i]);
  }
}

template <typename T>
void update_momentum(float* __restrict__ p, float* __restrict__ b, const T* __restrict__ gradient,
                     std::int64_t count, const SgdFactors f) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = std::fma(f.weight_decay, p[i], load(gradient[i]) * f.gradient_scale);
    const float moving = std::fma(f.momentum, b[i], g);
    b[i] = f.first_step ? g : moving;
    const float ahead = std::fma(f.momentum, b[i], g);
    p[i] = std::fma(-f.learning_rate, f.nesterov ? ahead : b[i], p[i]);
  }
}

void update(const SgdTensors& t, bool momentum, SgdFactors factors) {
  constexpr std::int64_t kChunk = 1 << 15;
  if (!t.decay) factors.weight_decay = 0.0f;
  float* p = t.p.data<float>();
  float* b = momentum ? t.b.data<float>() : nullptr;
  visit_floating(t.gradient.dtype(), [&](auto type) {
    const auto* gradient = t.gradient.data<decltype(type)>();
    parallel_for(t.p.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      if (momentum) {
        update_momentum(p + begin, b + begin, gradient + begin, end - begin, factors);
      } else {
        update_plain(p + begin, gradient + begin, end - begin, factors);
      }
    });
  });
}

}  // namespace

void sgd(std::span<const SgdTensors> parameters, const SgdSettings& settings,
         const Tensor& gradient_scale) {
  SgdFactors factors(settings);
  if (gradient_scale.defined()) factors.gradient_scale = *gradient_scale.data<float>();
  if (gradient_scale.defined() && !std::isfinite(factors.gradient_scale)) return;
  for (const SgdTensors& tensors : parameters) update(tensors, settings.momentum != 0.0, factors);
}

}  // namespace tessera::cpu
