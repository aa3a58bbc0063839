#include <vector>

#include "kernels/cpu/multi_tensor.h"
#include "kernels/cpu/numeric.h"
#include "kernels/sgd/factors.h"

namespace tessera::cpu {
namespace {

// Every multiply-add is written as fma; see kernels/adamw/cpu.cpp.
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

void update(const SgdTensors& t, bool momentum, SgdFactors factors, std::int64_t begin,
            std::int64_t end) {
  if (!t.decay) factors.weight_decay = 0.0f;
  float* const p = t.p.data<float>() + begin;
  visit_floating(t.gradient.dtype(), [&](auto type) {
    const auto* gradient = t.gradient.data<decltype(type)>() + begin;
    if (momentum) {
      update_momentum(p, t.b.data<float>() + begin, gradient, end - begin, factors);
    } else {
      update_plain(p, gradient, end - begin, factors);
    }
  });
}

}  // namespace

void sgd(std::span<const SgdTensors> parameters, const SgdSettings& settings,
         const Tensor& gradient_scale) {
  SgdFactors factors(settings);
  if (gradient_scale.defined()) {
    on_one_thread([&] { factors.gradient_scale = *gradient_scale.data<float>(); });
  }
  if (gradient_scale.defined() && !std::isfinite(factors.gradient_scale)) return;
  constexpr std::int64_t kChunk = 1 << 15;
  std::vector<std::int64_t> counts;
  for (const SgdTensors& t : parameters) counts.push_back(t.p.numel());
  for_each_chunk(counts, kChunk, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
    update(parameters[i], settings.momentum != 0.0, factors, begin, end);
  });
}

}  // namespace tessera::cpu
