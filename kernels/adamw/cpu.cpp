#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/adamw/factors.h"
#include "kernels/cast/convert.h"
#include "kernels/cpu/multi_tensor.h"
#include "kernels/cpu/numeric.h"

namespace tessera::cpu {
namespace {

/// Elements between two writes of the copy: p, 8 KB, is still in the first-level cache.
constexpr std::int64_t kCopied = 1 << 11;

// Stores a value exactly in f32, and as one of its two neighbours in bf16: `chance` is 16 random
// bits.
void store_rounded(float& to, float value, std::uint32_t) {
  to = value;
}
void store_rounded(bfloat16& to, float value, std::uint32_t chance) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  to.bits = finite ? static_cast<std::uint16_t>((bits + chance) >> 16) : bfloat16(value).bits;
}

/// Word `index`, or 0 where T is stored exactly.
template <typename T>
std::uint32_t word_for(const RandomStream& random, std::uint64_t index) {
  return std::is_same_v<T, float> ? 0u : random.bits(index);
}

// Every multiply-add is written as fma. The compiler may contract the vector body and the scalar
// tail of the loop differently; an element's bits would then depend on where its range begins.
template <typename P, typename S, typename T>
void update(P* __restrict__ p, S* __restrict__ m, S* __restrict__ v, const T* __restrict__ gradient,
            std::int64_t begin, std::int64_t end, const AdamWFactors f, const RandomStream random,
            const std::int64_t first) {
  for (std::int64_t i = begin; i < end; ++i) {
    const auto index = static_cast<std::uint64_t>(first + i);
    const std::uint32_t word = word_for<P>(random, index);
    const std::uint32_t of_moments = word_for<S>(random, kMomentWords + index);
    const float g = load(gradient[i]) * f.gradient_scale;
    const float new_m = std::fma(f.beta1, load(m[i]), f.beta1_rest * g);
    const float new_v = std::fma(f.beta2, load(v[i]), f.beta2_rest * (g * g));
    const float root = std::fma(std::sqrt(new_v), f.root_scale, f.epsilon);
    const float old = load(p[i]);
    store_rounded(m[i], new_m, of_moments >> 16);
    store_rounded(v[i], new_v, of_moments & 0xffffu);
    store_rounded(p[i], old - std::fma(f.step_size, new_m / root, f.decay * old), word >> 16);
  }
}

template <typename P, typename S>
void update(const AdamWTensors& t, AdamWFactors factors, std::int64_t begin, std::int64_t end) {
  if (!t.decay) factors.decay = 0.0f;
  visit_floating(t.gradient.dtype(), [&](auto type) {
    update(t.p.data<P>(), t.m.data<S>(), t.v.data<S>(), t.gradient.data<decltype(type)>(), begin,
           end, factors, t.rounding, t.first);
  });
}

template <typename P>
void write_copy(const AdamWTensors& t, std::int64_t begin, std::int64_t end) {
  visit_floating(t.copy.dtype(), [&](auto type) {
    convert(t.copy.data<decltype(type)>() + begin, t.p.data<P>() + begin, end - begin);
  });
}

template <typename P, typename S>
void update_and_copy(const AdamWTensors& t, const AdamWFactors& factors, std::int64_t begin,
                     std::int64_t end) {
  if (!t.copy.defined()) return update<P, S>(t, factors, begin, end);
  for (; begin < end; begin += kCopied) {
    const std::int64_t next = std::min(begin + kCopied, end);
    update<P, S>(t, factors, begin, next);
    write_copy<P>(t, begin, next);
  }
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
  const bool exact_p = parameters.front().p.dtype() == DType::f32;
  const bool exact_moments = parameters.front().m.dtype() == DType::f32;
  for_each_chunk(counts, kChunk, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
    const AdamWTensors& t = parameters[i];
    if (exact_p) {
      exact_moments ? update_and_copy<float, float>(t, factors, begin, end)
                    : update_and_copy<float, bfloat16>(t, factors, begin, end);
    } else {
      exact_moments ? update_and_copy<bfloat16, float>(t, factors, begin, end)
                    : update_and_copy<bfloat16, bfloat16>(t, factors, begin, end);
    }
  });
}

}  // namespace tessera::cpu
