// AdamW over all of a rank's shards in one launch.
//
// Traffic per element: p, m, v read and written (24 bytes), the gradient read (4, or 2 in 16 bits).
// A block takes a chunk of 8192 elements of one tensor, a thread four neighbours at a time, 1024
// elements apart:
//
//   thread      0          1                 255        0
//   element   | 0 1 2 3 | 4 5 6 7 | ... | 1020..1023 | 1024..1027 | ...
//
// so a warp reads 512 consecutive bytes of p, m and v each. Four loads of 16 bytes are in flight
// per thread and nothing is used twice: occupancy hides what latency there is.
#include "kernels/adamw/factors.h"
#include "kernels/cuda/multi_tensor.h"

namespace tessera::cuda {
namespace {

template <typename G>
struct Item {
  float *p, *m, *v;
  const G* gradient;
  std::int64_t count;
  bool decay;

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

template <typename G>
__device__ void update_quad(const Item<G>& t, std::int64_t i, const AdamWFactors& f) {
  auto p = gpu::Quad<float>::load(t.p + i), m = gpu::Quad<float>::load(t.m + i),
       v = gpu::Quad<float>::load(t.v + i);
  const auto gradient = gpu::Quad<G>::load(t.gradient + i);
#pragma unroll
  for (int j = 0; j < 4; ++j) update(p.values[j], m.values[j], v.values[j], gradient.values[j], f);
  p.store(t.p + i);
  m.store(t.m + i);
  v.store(t.v + i);
}

template <typename G>
__global__ void __launch_bounds__(gpu::kThreads)
    adamw_kernel(const __grid_constant__ gpu::TensorList<Item<G>> list, AdamWFactors f,
                 const float* gradient_scale) {
  if (gradient_scale != nullptr) {
    f.gradient_scale = *gradient_scale;
    if (!isfinite(f.gradient_scale)) return;
  }
  const auto chunk = gpu::Chunk<Item<G>>::of_block(list);
  const Item<G>& t = chunk.item;
  if (!t.decay) f.decay = 0.0f;
  chunk.for_each(
      [&](std::int64_t i) { update_quad(t, i, f); },
      [&](std::int64_t i) { update(t.p[i], t.m[i], t.v[i], gpu::load(t.gradient[i]), f); });
}

}  // namespace

void adamw(std::span<const AdamWTensors> parameters, const AdamWSettings& settings,
           const Tensor& gradient_scale) {
  const float* scale = gradient_scale.defined() ? gradient_scale.data<float>() : nullptr;
  gpu::visit(parameters.front().gradient.dtype(), [&](auto type) {
    using G = decltype(type);
    std::vector<Item<G>> items;
    for (const AdamWTensors& t : parameters) {
      items.push_back({t.p.data<float>(), t.m.data<float>(), t.v.data<float>(),
                       t.gradient.data<G>(), t.p.numel(), t.decay});
    }
    gpu::for_each_list<Item<G>>(items, [&](const gpu::TensorList<Item<G>>& list) {
      gpu::launch(adamw_kernel<G>, dim3(static_cast<unsigned>(list.chunks)), dim3(gpu::kThreads), 0,
                  gpu::stream(), list, AdamWFactors(settings), scale);
    });
  });
}

}  // namespace tessera::cuda
