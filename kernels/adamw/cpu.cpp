#include <algorithm>
#include <optional>
#include <type_traits>
#include <vector>

#include "kernels/adamw/factors.h"
#include "kernels/cast/convert.h"
#include "kernels/cpu/magnitude.h"
#include "kernels/cpu/multi_tensor.h"
#include "kernels/cpu/numeric.h"
#include "kernels/cpu/random_words.h"
#include "kernels/fp8/grid.h"

namespace tessera::cpu {
namespace {

/// Elements between two writes of the copy: p, 8 KB, is still in the first-level cache.
constexpr std::int64_t kCopied = 1 << 11;

/// Are p and the moments stored as they are?
template <typename P, typename S>
constexpr bool is_exact = std::is_same_v<P, float>&& std::is_same_v<S, float>;

constexpr std::uint32_t kLargest = 0x7f7f0000u;  // the largest finite bf16, as the bits of an f32

// Stores a value exactly in f32, and as one of its two neighbours in bf16: `chance` is 16 random
// bits. Above the largest finite bf16 the upper neighbour would be infinity: such a value becomes the
// lower one. Infinity and NaN keep their upper halves: a NaN that arithmetic returns is quiet, which is a
// bit of that half. Without branches, so that loops vectorize.
void store_rounded(float& to, float value, std::uint32_t) {
  to = value;
}
void store_rounded(bfloat16& to, float value, std::uint32_t chance) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t added = (bits & 0x7fffffffu) < kLargest ? chance : 0;
  to.bits = static_cast<std::uint16_t>((bits + added) >> 16);
}

/// A pass over elements [begin, end). Where p or the moments are rounded, element i takes
/// words[i - begin].
//
// Every multiply-add is written as fma. The compiler may contract the vector body and the scalar
// tail of the loop differently; an element's bits would then depend on where its range begins.
template <typename P, typename S, typename T>
void update(P* __restrict__ p, S* __restrict__ m, S* __restrict__ v, const T* __restrict__ gradient,
            std::int64_t begin, std::int64_t end, const AdamWFactors& f,
            const std::uint32_t* __restrict__ words) {
  for (std::int64_t i = begin; i < end; ++i) {
    const std::uint32_t word = is_exact<P, S> ? 0 : words[i - begin];
    const float g = load(gradient[i]) * f.gradient_scale;
    const float new_m = std::fma(f.beta1, load(m[i]), f.beta1_rest * g);
    const float new_v = std::fma(f.beta2, load(v[i]), f.beta2_rest * (g * g));
    const float root = std::fma(std::sqrt(new_v), f.root_scale, f.epsilon);
    const float old = load(p[i]);
    store_rounded(m[i], new_m, word & 0xffffu);
    store_rounded(v[i], new_v, word * kOfV >> 16);
    store_rounded(p[i], old - std::fma(f.step_size, new_m / root, f.decay * old), word >> 16);
  }
}

/// The same for neighbours of the parameter that draw random words, from its element `first` on: a Philox
/// block serves four of them.
template <typename P, typename S, typename T>
void update_at_random(const AdamWTensors& t, const AdamWFactors& f, std::int64_t first,
                      std::int64_t begin, std::int64_t end) {
  std::uint32_t words[kWordsAtOnce];
  for (first -= begin; begin < end;) {
    const auto index = static_cast<std::uint64_t>(first + begin);
    const std::uint64_t skipped = index % kBlockWords;
    fill_words<kRoundingRounds>(words, t.rounding, index / kBlockWords);
    const std::int64_t next = std::min(end, begin + kWordsAtOnce - static_cast<int>(skipped));
    update(t.p.data<P>(), t.m.data<S>(), t.v.data<S>(), t.gradient.data<T>(), begin, next, f,
           words + skipped);
    begin = next;
  }
}

template <typename P, typename S>
void update(const AdamWTensors& t, AdamWFactors factors, std::int64_t begin, std::int64_t end) {
  if (!t.decay) factors.decay = 0.0f;
  visit_floating(t.gradient.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (is_exact<P, S>) {
      update(t.p.data<P>(), t.m.data<S>(), t.v.data<S>(), t.gradient.data<T>(), begin, end, factors,
             nullptr);
    } else {
      t.elements.from(begin).for_each_run(
          end - begin, [&](std::int64_t first, std::int64_t offset, std::int64_t count) {
            update_at_random<P, S, T>(t, factors, first, begin + offset, begin + offset + count);
          });
    }
  });
}

/// fp8_quantize of p in f32.
void round_copy(const AdamWTensors& t, std::int64_t begin, std::int64_t end) {
  const float* const p = t.p.data<float>();
  auto* const copy = reinterpret_cast<std::uint8_t*>(t.copy.raw());
  const float scale = *t.to_8_bits.scale.data<float>();
  std::int32_t most = 0;
#pragma omp simd reduction(max : most)
  for (std::int64_t i = begin; i < end; ++i) {
    const float value = load(static_cast<bfloat16>(p[i]));
    most = std::max(most, bits_of_magnitude(value));
    copy[i] = Fp8Grid::of(DType::e4m3).nearest(scale * value);
  }
  raise(*t.to_8_bits.largest.data<float>(), most);
}

template <typename P>
void write_copy(const AdamWTensors& t, std::int64_t begin, std::int64_t end) {
  if (is_fp8(t.copy.dtype())) return round_copy(t, begin, end);
  visit_floating(t.copy.dtype(), [&](auto type) {
    convert(t.copy.data<decltype(type)>() + begin, t.p.data<P>() + begin, end - begin);
  });
}

template <typename P, typename S>
void update_and_copy(const AdamWTensors& t, const std::optional<AdamWFactors>& factors,
                     std::int64_t begin, std::int64_t end) {
  const std::int64_t piece = t.copy.defined() ? kCopied : end - begin;
  const bool copies = t.copy.defined() && (factors || is_fp8(t.copy.dtype()));
  for (; begin < end; begin += piece) {
    const std::int64_t next = std::min(begin + piece, end);
    if (factors) update<P, S>(t, *factors, begin, next);
    if (copies) write_copy<P>(t, begin, next);
  }
}

}  // namespace

void adamw(std::span<const AdamWTensors> parameters, const AdamWSettings& settings,
           const Tensor& gradient_scale) {
  std::optional<AdamWFactors> factors(settings);  // none: p stays
  if (gradient_scale.defined()) {
    on_one_thread([&] { factors->gradient_scale = *gradient_scale.data<float>(); });
    if (!std::isfinite(factors->gradient_scale)) factors.reset();
  }
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
