#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/adamw/factors.h"
#include "kernels/cast/convert.h"
#include "kernels/cpu/multi_tensor.h"
#include "kernels/cpu/numeric.h"
#include "kernels/cpu/random_words.h"

namespace tessera::cpu {
namespace {

/// Elements between two writes of the copy: p, 8 KB, is still in the first-level cache.
constexpr std::int64_t kCopied = 1 << 11;

constexpr std::uint32_t kLargest = 0x7f7f0000u;  // the largest finite bf16, as the bits of an f32

// Stores a value exactly in f32, and as one of its two neighbours in bf16: `chance` is 16 random
// bits. Above the largest finite bf16 the upper neighbour would be infinity: such a value becomes the
// lower one. Infinity stays exact, and NaN becomes quiet. Without branches, so that loops vectorize.
void store_rounded(float& to, float value, std::uint32_t) {
  to = value;
}
void store_rounded(bfloat16& to, float value, std::uint32_t chance) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t added = magnitude < kLargest ? chance : 0;
  const std::uint32_t quiet = magnitude > 0x7f800000u ? 0x40u : 0;
  to.bits = static_cast<std::uint16_t>(((bits + added) >> 16) | quiet);
}

/// A pass over elements [begin, end). Element i takes words[i - begin] where p is rounded, and
/// of_moments[i - begin] where m and v are.
//
// Every multiply-add is written as fma. The compiler may contract the vector body and the scalar
// tail of the loop differently; an element's bits would then depend on where its range begins.
template <typename P, typename S, typename T>
void update(P* __restrict__ p, S* __restrict__ m, S* __restrict__ v, const T* __restrict__ gradient,
            std::int64_t begin, std::int64_t end, const AdamWFactors& f,
            const std::uint32_t* __restrict__ words, const std::uint32_t* __restrict__ of_moments) {
  for (std::int64_t i = begin; i < end; ++i) {
    const std::uint32_t word = std::is_same_v<P, float> ? 0 : words[i - begin];
    const std::uint32_t of_both = std::is_same_v<S, float> ? 0 : of_moments[i - begin];
    const float g = load(gradient[i]) * f.gradient_scale;
    const float new_m = std::fma(f.beta1, load(m[i]), f.beta1_rest * g);
    const float new_v = std::fma(f.beta2, load(v[i]), f.beta2_rest * (g * g));
    const float root = std::fma(std::sqrt(new_v), f.root_scale, f.epsilon);
    const float old = load(p[i]);
    store_rounded(m[i], new_m, of_both >> 16);
    store_rounded(v[i], new_v, of_both & 0xffffu);
    store_rounded(p[i], old - std::fma(f.step_size, new_m / root, f.decay * old), word >> 16);
  }
}

/// The same for neighbours of the parameter that draw random words, from its element `first` on: a Philox
/// block serves four of them.
template <typename P, typename S, typename T>
void update_at_random(const AdamWTensors& t, const AdamWFactors& f, std::int64_t first,
                      std::int64_t begin, std::int64_t end) {
  std::uint32_t words[kWordsAtOnce], of_moments[kWordsAtOnce];
  for (first -= begin; begin < end;) {
    const auto index = static_cast<std::uint64_t>(first + begin);
    const std::uint64_t block = index / kBlockWords, skipped = index % kBlockWords;
    if constexpr (!std::is_same_v<P, float>) fill_words(words, t.rounding, block);
    if constexpr (!std::is_same_v<S, float>) {
      fill_words(of_moments, t.rounding, kMomentWords / kBlockWords + block);
    }
    const std::int64_t next = std::min(end, begin + kWordsAtOnce - static_cast<int>(skipped));
    update(t.p.data<P>(), t.m.data<S>(), t.v.data<S>(), t.gradient.data<T>(), begin, next, f,
           words + skipped, of_moments + skipped);
    begin = next;
  }
}

template <typename P, typename S>
void update(const AdamWTensors& t, AdamWFactors factors, std::int64_t begin, std::int64_t end) {
  if (!t.decay) factors.decay = 0.0f;
  visit_floating(t.gradient.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<P, float> && std::is_same_v<S, float>) {
      update(t.p.data<P>(), t.m.data<S>(), t.v.data<S>(), t.gradient.data<T>(), begin, end, factors,
             nullptr, nullptr);
    } else {
      t.elements.from(begin).for_each_run(
          end - begin, [&](std::int64_t first, std::int64_t offset, std::int64_t count) {
            update_at_random<P, S, T>(t, factors, first, begin + offset, begin + offset + count);
          });
    }
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
  const std::int64_t piece = t.copy.defined() ? kCopied : end - begin;
  for (; begin < end; begin += piece) {
    const std::int64_t next = std::min(begin + piece, end);
    update<P, S>(t, factors, begin, next);
    if (t.copy.defined()) write_copy<P>(t, begin, next);
  }
}

}  // namespace

void adamw(std::span<const AdamWTensors> parameters, const AdamWSettings& settings,
           const Tensor& gradient_scale) {
  AdamWFactors factors(settings);
  if (gradient_scale.defined()) {
    on_one_thread([&] { factors.gradient_scale = *gradient_scale.data<float>(); });
  }
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
