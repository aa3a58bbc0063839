#include <vector>

#include "kernels/adamw/factors.h"
#include "kernels/cpu/multi_tensor.h"
#include "kernels/cpu/numeric.h"

namespace tessera::cpu {
namespace {

// How p is stored: exactly in f32, as a random neighbour in bf16.
struct Exact {
  void operator()(float& to, float value, std::int64_t) const { to = value; }
};
struct Stochastic {
  RandomStream random;
  std::int64_t first;

  void operator()(bfloat16& to, float value, std::int64_t i) const {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t chance = random.bits(static_cast<std::uint64_t>(first + i)) >> 16;
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    to.bits = finite ? static_cast<std::uint16_t>((bits + chance) >> 16) : bfloat16(value).bits;
  }
};

// Every multiply-add is written as fma. The compiler may contract the vector body and the scalar
// tail of the loop differently; an element's bits would then depend on where its range begins.
template <typename P, typename T, typename Store>
void update(P* __restrict__ p, float* __restrict__ m, float* __restrict__ v,
            const T* __restrict__ gradient, std::int64_t begin, std::int64_t end,
            const AdamWFactors f, const Store store_p) {
  for (std::int64_t i = begin; i < end; ++i) {
    const float g = load(gradient[i]) * f.gradient_scale;
    m[i] = std::fma(f.beta1, m[i], f.beta1_rest * g);
    v[i] = std::fma(f.beta2, v[i], f.beta2_rest * (g * g));
    const float root = std::fma(std::sqrt(v[i]), f.root_scale, f.epsilon);
    const float old = load(p[i]);
    store_p(p[i], old - std::fma(f.step_size, m[i] / root, f.decay * old), i);
  }
}

template <typename P, typename Store>
void update(const AdamWTensors& t, AdamWFactors factors, std::int64_t begin, std::int64_t end,
            const Store& store_p) {
  if (!t.decay) factors.decay = 0.0f;
  visit_floating(t.gradient.dtype(), [&](auto type) {
    update(t.p.data<P>(), t.m.data<float>(), t.v.data<float>(), t.gradient.data<decltype(type)>(),
           begin, end, factors, store_p);
  });
}

}  // namespace

void adamw(std::span<const AdamWTensors> parameters, const AdamWSettings& settings,
           const Tensor& gradient_scale) {
  AdamWFactors factors(settings);
  if (gradient_scale.defined()) factors.gradient_scale = *gradient_scale.data<float>();
  if (gradient_scale.defined() && !std::isfinite(factors.gradient_scale)) return;
  constexpr std::int64_t kChunk = 1 << 15;
  std::vector<std::int64_t> counts;
  for (const AdamWTensors& t : parameters) counts.push_back(t.p.numel());
  for_each_chunk(counts, kChunk, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
    const AdamWTensors& t = parameters[i];
    if (t.p.dtype() == DType::f32) {
      update<float>(t, factors, begin, end, Exact{});
    } else {
      update<bfloat16>(t, factors, begin, end, Stochastic{t.rounding, t.first});
    }
  });
}

}  // namespace tessera::cpu
