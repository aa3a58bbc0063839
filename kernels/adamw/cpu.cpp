#include "kernels/adamw/factors.h"
#include "kernels/cpu/numeric.h"
#include "runtime/threads.h"

namespace tessera::cpu {
namespace {

// Every multiply-add is written as fma: left to the compiler, the vector body and the scalar tail
// of the loop may be contracted differently, and an element's bits would depend on where its range
// begins.
template <typename T>
void update(float* __restrict__ p, float* __restrict__ m, float* __restrict__ v,
            const T* __restrict__ gradient, std::int64_t count, const AdamWFactors f) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = load(gradient[i]) * f.gradient_scale;
    m[i] = std::fma(f.beta1, m[i], f.beta1_rest * g);
    v[i] = std::fma(f.beta2, v[i], f.beta2_rest * (g * g));
    const float root = std::fma(std::sqrt(v[i]), f.root_scale, f.epsilon);
    p[i] -= std::fma(f.step_size, m[i] / root, f.decay * p[i]);
  }
}

void update(const AdamWTensors& t, AdamWFactors factors) {
  constexpr std::int64_t kChunk = 1 << 15;
  if (!t.decay) factors.decay = 0.0f;
  float *p = t.p.data<float>(), *m = t.m.data<float>(), *v = t.v.data<float>();
  visit_floating(t.gradient.dtype(), [&](auto type) {
    const auto* gradient = t.gradient.data<decltype(type)>();
    parallel_for(t.p.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      update(p + begin, m + begin, v + begin, gradient + begin, end - begin, factors);
    });
  });
}

}  // namespace

void adamw(std::span<const AdamWTensors> parameters, const AdamWSettings& settings,
           const Tensor& gradient_scale) {
  AdamWFactors factors(settings);
  if (gradient_scale.defined()) factors.gradient_scale = *gradient_scale.data<float>();
  if (gradient_scale.defined() && !std::isfinite(factors.gradient_scale)) return;
  for (const AdamWTensors& tensors : parameters) update(tensors, factors);
}

}  // namespace tessera::cpu
