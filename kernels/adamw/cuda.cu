// AdamW over all of a rank's shards in one launch.
//
// Traffic per element: p, m, v read and written (24 bytes; 20 with p in bf16), the gradient read
// (4, or 2 in 16 bits). A block takes a chunk of 8192 elements of one tensor, a thread four
// neighbours at a time, 1024 elements apart:
//
//   thread      0          1                 255        0
//   element   | 0 1 2 3 | 4 5 6 7 | ... | 1020..1023 | 1024..1027 | ...
//
// so a warp reads 512 consecutive bytes of m and of v. Four loads are in flight per thread, and no
// element is used twice: occupancy hides the latency.
#include "kernels/adamw/factors.h"
#include "kernels/cuda/multi_tensor.h"
#include "kernels/cuda/philox.h"

namespace tessera::cuda {
namespace {

// How p is stored: exactly in f32, rounded at random in bf16.
template <typename P>
struct Rounding {
  explicit Rounding(const AdamWTensors&) {}
  Rounding() = default;

  __device__ void store(float* p, std::int64_t, float value) const { *p = value; }
  __device__ void store_quad(float* p, std::int64_t, const gpu::Quad<float>& values) const {
    values.store(p);
  }
};

template <>
struct Rounding<bfloat16> {
  gpu::RandomWords random;
  std::int64_t first;  // index of element 0 in the random sequence

  explicit Rounding(const AdamWTensors& t) : random(t.rounding), first(t.first) {}
  Rounding() = default;

  // Infinity stays exact, and NaN becomes quiet.
  __device__ static bfloat16 rounded(float value, unsigned random_word) {
    const unsigned bits = __float_as_uint(value);
    bfloat16 result;
    gpu::store(result, value);
    if ((bits & 0x7f800000u) != 0x7f800000u) {
      result.bits = static_cast<std::uint16_t>((bits + (random_word >> 16)) >> 16);
    }
    return result;
  }

  // Words i to i + 3 of the sequence, from one Philox block or two.
  __device__ void draw(unsigned (&words)[4], std::int64_t i) const {
    const std::uint64_t index = first + i;
    const uint4 a = random.block(index / 4);
    const unsigned skipped = index % 4;  // the same for all quads of a tensor
    const uint4 b = skipped == 0 ? a : random.block(index / 4 + 1);
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

  __device__ void store(bfloat16* p, std::int64_t i, float value) const {
    unsigned words[4];
    draw(words, i);
    *p = rounded(value, words[0]);
  }
  __device__ void store_quad(bfloat16* p, std::int64_t i, const gpu::Quad<float>& values) const {
    unsigned words[4];
    draw(words, i);
    gpu::Quad<bfloat16> exact;
#pragma unroll
    for (int j = 0; j < 4; ++j) exact.values[j] = gpu::load(rounded(values.values[j], words[j]));
    exact.store(p);
  }
};

template <typename P, typename G>
struct Item {
  P* p;
  float *m, *v;
  const G* gradient;
  std::int64_t count;
  bool decay;
  Rounding<P> rounding;

  __device__ bool has_quads() const { return gpu::are_quads(p, m, v, gradient); }
};

// The formula of cpu.cpp, operation by operation: fma, sqrt and division are correctly rounded on
// both devices, so the bits are the same.
__device__ void update(float& p, float& m, float& v, float gradient, const AdamWFactors& f) {
  const float g = gradient * f.gradient_scale;
  m = fmaf(f.beta1, m, f.beta1_rest * g);
  v = fmaf(f.beta2, v, f.beta2_rest * (g * g));
  const float root = fmaf(sqrtf(v), f.root_scale, f.epsilon);
  p -= fmaf(f.step_size, m / root, f.decay * p);
}

template <typename P, typename G>
__device__ void update_quad(const Item<P, G>& t, std::int64_t i, const AdamWFactors& f) {
  const auto old = gpu::Quad<P>::load(t.p + i);
  auto m = gpu::Quad<float>::load(t.m + i), v = gpu::Quad<float>::load(t.v + i);
  const auto gradient = gpu::Quad<G>::load(t.gradient + i);
  gpu::Quad<float> p;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    p.values[j] = old.values[j];
    update(p.values[j], m.values[j], v.values[j], gradient.values[j], f);
  }
  t.rounding.store_quad(t.p + i, i, p);
  m.store(t.m + i);
  v.store(t.v + i);
}

template <typename P, typename G>
__device__ void update_one(const Item<P, G>& t, std::int64_t i, const AdamWFactors& f) {
  float p = gpu::load(t.p[i]);
  update(p, t.m[i], t.v[i], gpu::load(t.gradient[i]), f);
  t.rounding.store(t.p + i, i, p);
}

template <typename P, typename G>
__global__ void __launch_bounds__(gpu::kThreads)
    adamw_kernel(const __grid_constant__ gpu::TensorList<Item<P, G>> list, AdamWFactors f,
                 const float* gradient_scale) {
  if (gradient_scale != nullptr) {
    f.gradient_scale = *gradient_scale;
    if (!isfinite(f.gradient_scale)) return;
  }
  const auto chunk = gpu::Chunk<Item<P, G>>::of_block(list);
  const Item<P, G>& t = chunk.item;
  if (!t.decay) f.decay = 0.0f;
  chunk.for_each([&](std::int64_t i) { update_quad(t, i, f); },
                 [&](std::int64_t i) { update_one(t, i, f); });
}

template <typename P, typename G>
void launch(std::span<const AdamWTensors> parameters, const AdamWFactors& factors,
            const float* gradient_scale) {
  std::vector<Item<P, G>> items;
  for (const AdamWTensors& t : parameters) {
    items.push_back({t.p.data<P>(), t.m.data<float>(), t.v.data<float>(), t.gradient.data<G>(),
                     t.p.numel(), t.decay, Rounding<P>(t)});
  }
  gpu::launch_for_each_list<Item<P, G>>(items, adamw_kernel<P, G>, factors, gradient_scale);
}

}  // namespace

void adamw(std::span<const AdamWTensors> parameters, const AdamWSettings& settings,
           const Tensor& gradient_scale) {
  const AdamWFactors factors(settings);
  const float* scale = gradient_scale.defined() ? gradient_scale.data<float>() : nullptr;
  const AdamWTensors& first = parameters.front();
  gpu::visit(first.gradient.dtype(), [&](auto type) {
    using G = decltype(type);
    if (first.p.dtype() == DType::f32) {
      launch<float, G>(parameters, factors, scale);
    } else {
      launch<bfloat16, G>(parameters, factors, scale);
    }
  });
}

}  // namespace tessera::cuda
