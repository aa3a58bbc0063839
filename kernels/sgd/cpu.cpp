#include "kernels/cpu/numeric.h"
#include "kernels/sgd/op.h"
#include "runtime/threads.h"

namespace tessera::cpu {
namespace {

struct Factors {
  explicit Factors(const SgdSettings& s)
      : learning_rate(static_cast<float>(s.learning_rate)),
        momentum(static_cast<float>(s.momentum)),
        weight_decay(static_cast<float>(s.weight_decay)),
        gradient_scale(static_cast<float>(s.gradient_scale)),
        nesterov(s.nesterov),
        first_step(s.first_step) {}

  float learning_rate;
  float momentum;
  float weight_decay;
  float gradient_scale;
  bool nesterov;
  bool first_step;
};

// As in adamw, every multiply-add is written as fma, so that an element's bits do not depend on
// whether it falls into the loop's vector body or into its tail.
template <typename T>
void update_plain(float* __restrict__ p, const T* __restrict__ gradient, std::int64_t count,
                  const Factors f) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = std::fma(f.weight_decay, p[i], load(gradient[i]) * f.gradient_scale);
    p[i] = std::fma(-f.learning_rate, g, p[i]);
  }
}

template <typename T>
void update_momentum(float* __restrict__ p, float* __restrict__ b, const T* __restrict__ gradient,
                     std::int64_t count, const Factors f) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = std::fma(f.weight_decay, p[i], load(gradient[i]) * f.gradient_scale);
    const float moving = std::fma(f.momentum, b[i], g);
    b[i] = f.first_step ? g : moving;
    const float ahead = std::fma(f.momentum, b[i], g);
    p[i] = std::fma(-f.learning_rate, f.nesterov ? ahead : b[i], p[i]);
  }
}

}  // namespace

void sgd(Out p, Out b, const Tensor& gradient, const SgdSettings& settings) {
  constexpr std::int64_t kChunk = 1 << 15;
  const Factors factors(settings);
  const bool plain = settings.momentum == 0.0;
  float* parameters = p.data<float>();
  float* moving = plain ? nullptr : b.data<float>();
  visit_floating(gradient.dtype(), [&](auto type) {
    const auto* gradients = gradient.data<decltype(type)>();
    parallel_for(p.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      if (plain) {
        update_plain(parameters + begin, gradients + begin, end - begin, factors);
      } else {
        update_momentum(parameters + begin, moving + begin, gradients + begin, end - begin,
                        factors);
      }
    });
  });
}

}  // namespace tessera::cpu
