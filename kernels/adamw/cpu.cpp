#include "kernels/adamw/op.h"
#include "kernels/cpu/numeric.h"
#include "runtime/threads.h"

namespace tessera::cpu {
namespace {

// The update's factors. Each is worked out in double first: 1 - beta^t and learning_rate *
// weight_decay lose too many digits in float.
struct Factors {
  explicit Factors(const AdamWSettings& s)
      : gradient_scale(static_cast<float>(s.gradient_scale)),
        beta1(static_cast<float>(s.beta1)),
        beta1_rest(static_cast<float>(1.0 - s.beta1)),
        beta2(static_cast<float>(s.beta2)),
        beta2_rest(static_cast<float>(1.0 - s.beta2)),
        step_size(static_cast<float>(s.learning_rate / (1.0 - std::pow(s.beta1, s.step)))),
        root_scale(static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(s.beta2, s.step)))),
        epsilon(static_cast<float>(s.epsilon)),
        decay(static_cast<float>(s.learning_rate * s.weight_decay)) {}

  float gradient_scale;
  float beta1, beta1_rest;
  float beta2, beta2_rest;
  float step_size;   // learning_rate / (1 - beta1^t)
  float root_scale;  // sqrt(v) * root_scale = sqrt(v / (1 - beta2^t))
  float epsilon;
  float decay;
};

// Every multiply-add is written as fma: left to the compiler, the vector body and the scalar tail
// of the loop may be contracted differently, and an element's bits would depend on where its range
// begins.
template <typename T>
void update(float* __restrict__ p, float* __restrict__ m, float* __restrict__ v,
            const T* __restrict__ gradient, std::int64_t count, const Factors f) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = load(gradient[i]) * f.gradient_scale;
    m[i] = std::fma(f.beta1, m[i], f.beta1_rest * g);
    v[i] = std::fma(f.beta2, v[i], f.beta2_rest * (g * g));
    const float root = std::fma(std::sqrt(v[i]), f.root_scale, f.epsilon);
    p[i] -= std::fma(f.step_size, m[i] / root, f.decay * p[i]);
  }
}

}  // namespace

void adamw(Out p, Out m, Out v, const Tensor& gradient, const AdamWSettings& settings) {
  constexpr std::int64_t kChunk = 1 << 15;
  const Factors factors(settings);
  float *parameters = p.data<float>(), *first = m.data<float>(), *second = v.data<float>();
  visit_floating(gradient.dtype(), [&](auto type) {
    const auto* gradients = gradient.data<decltype(type)>();
    parallel_for(p.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      update(parameters + begin, first + begin, second + begin, gradients + begin, end - begin,
             factors);
    });
  });
}

}  // namespace tessera::cpu
