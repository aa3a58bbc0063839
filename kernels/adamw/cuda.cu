// AdamW over all of a rank's shards in one launch.
//
// Traffic per element: p, m, v read and written (24 bytes; 20 with p in bf16, 12 with the moments
// in bf16, too), the gradient read (4, or 2 in 16 bits), the copy written (2 in 16 bits, 1 in e4m3). A block
// takes a chunk of 8192 elements of one tensor, a thread four neighbours at a time, 1024 elements
// apart:
//
//   thread      0          1                 255        0
//   element   | 0 1 2 3 | 4 5 6 7 | ... | 1020..1023 | 1024..1027 | ...
//
// so a warp reads 512 consecutive bytes of m and of v. Four loads are in flight per thread, and no
// element is used twice: occupancy hides the latency.
#include <algorithm>

#include "kernels/adamw/factors.h"
#include "kernels/cast/device.h"
#include "kernels/cuda/magnitude.h"
#include "kernels/cuda/multi_tensor.h"
#include "kernels/cuda/philox.h"
#include "kernels/cuda/step_value.h"
#include "kernels/fp8/grid.h"

namespace tessera::cuda {
namespace {

/// Random words of a tensor's elements; nothing where all is stored exactly.
template <bool kRandom>
struct Words {
  explicit Words(const AdamWTensors&) {}
  Words() = default;

  __device__ void draw(unsigned (&)[4], std::int64_t) const {}
};

template <>
struct Words<true> {
  gpu::RandomWords random;
  Elements elements;

  explicit Words(const AdamWTensors& t) : random(t.rounding), elements(t.elements) {}
  Words() = default;

  // The words of elements i to i + 3.
  __device__ void draw(unsigned (&words)[4], std::int64_t i) const {
    const std::int64_t at = elements.skip + i, begun = at < elements.run ? 0 : at / elements.run;
    const std::int64_t place = at - begun * elements.run;
    const std::uint64_t index = elements.first + begun * elements.stride + place;
    if (place + 3 < elements.run) return draw_neighbours(words, index);
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // the run ends within the four
      const std::int64_t runs = (at + j) / elements.run;
      words[j] = word(elements.first + runs * elements.stride + (at + j - runs * elements.run));
    }
  }

 private:
  __device__ unsigned word(std::uint64_t index) const {
    const uint4 block = random.block<kRoundingRounds>(index / 4);
    const unsigned place = index % 4;
    return place == 0 ? block.x : place == 1 ? block.y : place == 2 ? block.z : block.w;
  }

  // Words from `index` on, from one Philox block or two.
  __device__ void draw_neighbours(unsigned (&words)[4], std::uint64_t index) const {
    const uint4 a = random.block<kRoundingRounds>(index / 4);
    const unsigned skipped = index % 4;
    const uint4 b = skipped == 0 ? a : random.block<kRoundingRounds>(index / 4 + 1);
    unsigned both[7] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z};
#pragma unroll
    for (unsigned shift = 1; shift <= 2; ++shift) {
      if ((skipped & shift) == 0) continue;
#pragma unroll
      for (unsigned j = 0; j + shift < 7; ++j) both[j] = both[j + shift];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) words[j] = both[j];
  }
};

constexpr float kLargest = 0x1.fep127f;  // of finite bf16

// How a value is stored: exactly in f32, as a random neighbour in bf16. `chance` is 16 random bits.
// Above the largest finite bf16 the upper neighbour would be infinity: such a value becomes the lower
// one. Infinity and NaN keep their upper halves: a NaN that arithmetic returns is quiet, which is a bit
// of that half.
__device__ inline void store_rounded(float& to, float value, unsigned) {
  to = value;
}
__device__ inline void store_rounded(bfloat16& to, float value, unsigned chance) {
  const unsigned added = fabsf(value) < kLargest ? chance : 0;
  to.bits = static_cast<std::uint16_t>((__float_as_uint(value) + added) >> 16);
}

/// From values to e4m3, as fp8_quantize rounds them, and the largest magnitude of a thread.
struct Rounding {
  float scale = 0.0f;
  int most = 0;

  __device__ unsigned code(float given) {
    const float value = gpu::rounded<bfloat16>(given);
    most = max(most, gpu::bits_of_magnitude(value));
    return Fp8Grid::of(DType::e4m3).nearest(scale * value);
  }
};

/// The copy of p in another dtype. Its dtype is known at run time only: a branch that all threads
/// of a block take alike costs nothing next to the memory's traffic. Kernels for copies in e4m3 need more
/// registers, so they are separate ones.
template <bool kRounds>
struct CopyOfP {
  void* data;  // null: none
  DType dtype;
  const float* scale;  // of e4m3, as `largest`
  float* largest;

  CopyOfP() = default;
  explicit CopyOfP(const AdamWTensors& t) : CopyOfP{} {
    if (!t.copy.defined()) return;
    data = t.copy.raw();
    dtype = t.copy.dtype();
    if (!rounds()) return;
    scale = t.to_8_bits.scale.data<float>();
    largest = t.to_8_bits.largest.data<float>();
  }

  __host__ __device__ bool rounds() const { return kRounds && dtype == DType::e4m3; }
  __device__ bool has_quads() const {
    const std::uintptr_t bytes = rounds() ? 4 : dtype == DType::f32 ? 16 : 8;
    return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
  }

  /// Writes `kCount` neighbours from element i on, which are all of them or aligned.
  template <typename P, int kCount>
  __device__ void write(const P (&p)[kCount], std::int64_t i, Rounding& rounding) const {
    if (data == nullptr) return;
    if (rounds()) return write_codes(p, i, rounding);
    if (dtype == DType::bf16) return write_as<bfloat16>(p, i);
    if (dtype == DType::f16) return write_as<float16>(p, i);
    write_as<float>(p, i);
  }

 private:
  template <typename P, int kCount>
  __device__ void write_codes(const P (&p)[kCount], std::int64_t i, Rounding& rounding) const {
    unsigned codes = 0;
#pragma unroll
    for (int j = 0; j < kCount; ++j) codes |= rounding.code(gpu::widen(p[j])) << (8 * j);
    auto* const to = static_cast<std::uint8_t*>(data) + i;
    if constexpr (kCount == 4) {
      *reinterpret_cast<unsigned*>(to) = codes;
    } else {
      *to = static_cast<std::uint8_t>(codes);
    }
  }

  template <typename To, typename P, int kCount>
  __device__ void write_as(const P (&p)[kCount], std::int64_t i) const {
    To* const to = static_cast<To*>(data) + i;
    gpu::Four<To> four;
#pragma unroll
    for (int j = 0; j < kCount; ++j) gpu::narrow(four.values[j], gpu::widen(p[j]));
    if constexpr (kCount == 4) {
      four.store(to);
    } else {
      *to = four.values[0];
    }
  }
};

template <typename P, typename S, typename G, bool kRounds>
struct Item {
  static constexpr bool kRandom = sizeof(P) == 2 || sizeof(S) == 2;

  P* p;
  S *m, *v;
  const G* gradient;
  CopyOfP<kRounds> copy;
  bool decay;
  Words<kRandom> random;
  std::int64_t count;

  __device__ bool has_quads() const {
    return gpu::are_quads(p, m, v, gradient) && copy.has_quads();
  }
};

// The formula of cpu.cpp, operation by operation: fma, sqrt and division are correctly rounded on
// both devices, so the bits are the same.
template <typename P, typename S>
__device__ void update(P& p, S& m, S& v, float gradient, unsigned word, const AdamWFactors& f) {
  const float g = gradient * f.gradient_scale;
  const float new_m = fmaf(f.beta1, gpu::load(m), f.beta1_rest * g);
  const float new_v = fmaf(f.beta2, gpu::load(v), f.beta2_rest * (g * g));
  const float root = fmaf(sqrtf(new_v), f.root_scale, f.epsilon);
  const float old = gpu::load(p);
  store_rounded(m, new_m, word & 0xffffu);
  store_rounded(v, new_v, word * kOfV >> 16);
  store_rounded(p, old - fmaf(f.step_size, new_m / root, f.decay * old), word >> 16);
}

template <typename P, typename S, typename G, bool kRounds>
__device__ void update_quad(const Item<P, S, G, kRounds>& t, std::int64_t i, const AdamWFactors& f,
                            bool updates, Rounding& rounding) {
  auto p = gpu::Four<P>::load(t.p + i);
  if (kRounds && !updates) return t.copy.write(p.values, i, rounding);
  auto m = gpu::Four<S>::load(t.m + i), v = gpu::Four<S>::load(t.v + i);
  const auto gradient = gpu::Quad<G>::load(t.gradient + i);
  unsigned words[4] = {};
  t.random.draw(words, i);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    update(p.values[j], m.values[j], v.values[j], gradient.values[j], words[j], f);
  }
  p.store(t.p + i);
  m.store(t.m + i);
  v.store(t.v + i);
  t.copy.write(p.values, i, rounding);
}

template <typename P, typename S, typename G, bool kRounds>
__device__ void update_one(const Item<P, S, G, kRounds>& t, std::int64_t i, const AdamWFactors& f,
                           bool updates, Rounding& rounding) {
  unsigned words[4] = {};
  t.random.draw(words, i);
  P p[1] = {t.p[i]};
  if (kRounds && !updates) return t.copy.write(p, i, rounding);
  update(p[0], t.m[i], t.v[i], gpu::load(t.gradient[i]), words[0], f);
  t.p[i] = p[0];
  t.copy.write(p, i, rounding);
}

template <typename P, typename S, typename G, bool kRounds>
__global__ void __launch_bounds__(gpu::kThreads) adamw_kernel(
    const __grid_constant__ gpu::TensorList<Item<P, S, G, kRounds>, gpu::kLongList> list,
    StepValue<AdamWFactors> factors, const float* gradient_scale) {
  AdamWFactors f = gpu::current(factors);
  if (gradient_scale != nullptr) f.gradient_scale = *gradient_scale;
  const auto chunk = gpu::Chunk<Item<P, S, G, kRounds>>::of_block(list);
  const Item<P, S, G, kRounds>& t = chunk.item;
  if (!t.decay) f.decay = 0.0f;
  Rounding rounding;
  if (t.copy.rounds()) rounding.scale = *t.copy.scale;
  const bool updates = gradient_scale == nullptr || isfinite(f.gradient_scale);
  if (!updates && !t.copy.rounds()) return;
  chunk.for_each([&](std::int64_t i) { update_quad(t, i, f, updates, rounding); },
                 [&](std::int64_t i) { update_one(t, i, f, updates, rounding); });
  if (t.copy.rounds()) gpu::raise(t.copy.largest, rounding.most);
}

template <typename P, typename S, typename G, bool kRounds>
void launch_kernel(std::span<const AdamWTensors> parameters, const StepValue<AdamWFactors>& factors,
                   const float* gradient_scale) {
  using One = Item<P, S, G, kRounds>;
  std::vector<One> items;
  for (const AdamWTensors& t : parameters) {
    items.push_back({.p = t.p.data<P>(),
                     .m = t.m.data<S>(),
                     .v = t.v.data<S>(),
                     .gradient = t.gradient.data<G>(),
                     .copy = CopyOfP<kRounds>(t),
                     .decay = t.decay,
                     .random = Words<One::kRandom>(t),
                     .count = t.p.numel()});
  }
  gpu::launch_for_each_list<One, gpu::kLongList>(items, adamw_kernel<P, S, G, kRounds>, factors,
                                                 gradient_scale);
}

template <typename P, typename S, typename G>
void launch(std::span<const AdamWTensors> parameters, const StepValue<AdamWFactors>& factors,
            const float* gradient_scale) {
  if constexpr (sizeof(P) == 4) {
    const auto has_codes = [](const AdamWTensors& t) {
      return t.copy.defined() && is_fp8(t.copy.dtype());
    };
    if (std::ranges::any_of(parameters, has_codes)) {
      return launch_kernel<P, S, G, true>(parameters, factors, gradient_scale);
    }
  }
  launch_kernel<P, S, G, false>(parameters, factors, gradient_scale);
}

}  // namespace

void adamw(std::span<const AdamWTensors> parameters, const AdamWSettings& settings,
           const Tensor& gradient_scale) {
  const auto factors = step_value(AdamWFactors(settings), [settings](const StepNumbers& numbers) {
    AdamWSettings now = settings;
    now.learning_rate = numbers.learning_rates.at(settings.optimizer);
    now.step = numbers.update;
    return AdamWFactors(now);
  });
  const float* scale = gradient_scale.defined() ? gradient_scale.data<float>() : nullptr;
  const AdamWTensors& first = parameters.front();
  gpu::visit(first.gradient.dtype(), [&](auto type) {
    using G = decltype(type);
    const bool exact_moments = first.m.dtype() == DType::f32;
    if (first.p.dtype() == DType::f32) {
      exact_moments ? launch<float, float, G>(parameters, factors, scale)
                    : launch<float, bfloat16, G>(parameters, factors, scale);
    } else {
      exact_moments ? launch<bfloat16, float, G>(parameters, factors, scale)
                    : launch<bfloat16, bfloat16, G>(parameters, factors, scale);
    }
  });
}

}  // namespace tessera::cuda
