// Gradient descent over all of a rank's shards in one launch.
//
// kernels/adamw/cuda.cu draws which thread takes which elements. Traffic per element: p, and b with
// momentum, read and written (8 or 16 bytes); the gradient read (4 bytes, or 2 in 16 bits).
#include "kernels/cuda/multi_tensor.h"
#include "kernels/cuda/step_value.h"
#include "kernels/sgd/factors.h"

namespace tessera::cuda {
namespace {

template <typename G>
struct Item {
  float *p, *b;  // b is null without momentum
  const G* gradient;
  std::int64_t count;
  bool decay;

  __device__ bool has_quads() const { return gpu::are_quads(p, b, gradient); }
};

// The formulas of cpu.cpp, operation by operation: the same bits.
struct Plain {
  __device__ static void update(float& p, float&, float gradient, const SgdFactors& f) {
    const float g = fmaf(f.weight_decay, p, gradient * f.gradient_scale);
    p = fmaf(-f.learning_rate, g, p);
  }
};
struct Momentum {
  __device__ static void update(float& p, float& b, float gradient, const SgdFactors& f) {
    const float g = fmaf(f.weight_decay, p, gradient * f.gradient_scale);
    b = f.first_step ? g : fmaf(f.momentum, b, g);
    p = fmaf(-f.learning_rate, f.nesterov ? fmaf(f.momentum, b, g) : b, p);
  }
};

template <typename Form, typename G>
__device__ void update_quad(const Item<G>& t, std::int64_t i, const SgdFactors& f) {
  constexpr bool kMomentum = std::is_same_v<Form, Momentum>;
  auto p = gpu::Quad<float>::load(t.p + i);
  auto b = kMomentum ? gpu::Quad<float>::load(t.b + i) : gpu::Quad<float>{};
  const auto gradient = gpu::Quad<G>::load(t.gradient + i);
#pragma unroll
  for (int j = 0; j < 4; ++j) Form::update(p.values[j], b.values[j], gradient.values[j], f);
  p.store(t.p + i);
  if (kMomentum) b.store(t.b + i);
}

template <typename Form, typename G>
__device__ void update_one(const Item<G>& t, std::int64_t i, const SgdFactors& f) {
  float none = 0.0f;
  float& b = std::is_same_v<Form, Momentum> ? t.b[i] : none;
  Form::update(t.p[i], b, gpu::load(t.gradient[i]), f);
}

template <typename Form, typename G>
__global__ void __launch_bounds__(gpu::kThreads)
    sgd_kernel(const __grid_constant__ gpu::TensorList<Item<G>, gpu::kLongList> list,
               StepValue<SgdFactors> factors, const float* gradient_scale) {
  SgdFactors f = gpu::current(factors);
  if (gradient_scale != nullptr) {
    f.gradient_scale = *gradient_scale;
    if (!isfinite(f.gradient_scale)) return;
  }
  const auto chunk = gpu::Chunk<Item<G>>::of_block(list);
  const Item<G>& t = chunk.item;
  if (!t.decay) f.weight_decay = 0.0f;
  chunk.for_each([&](std::int64_t i) { update_quad<Form>(t, i, f); },
                 [&](std::int64_t i) { update_one<Form>(t, i, f); });
}

}  // namespace

void sgd(std::span<const SgdTensors> parameters, const SgdSettings& settings,
         const Tensor& gradient_scale) {
  const bool momentum = settings.momentum != 0.0;
  const auto factors = step_value(SgdFactors(settings), [settings](const StepNumbers& numbers) {
    SgdSettings now = settings;
    now.learning_rate = numbers.learning_rates.at(settings.optimizer);
    now.first_step = numbers.update == 1;
    return SgdFactors(now);
  });
  const float* scale = gradient_scale.defined() ? gradient_scale.data<float>() : nullptr;
  gpu::visit(parameters.front().gradient.dtype(), [&](auto type) {
    using G = decltype(type);
    std::vector<Item<G>> items;
    for (const SgdTensors& t : parameters) {
      items.push_back({t.p.data<float>(), momentum ? t.b.data<float>() : nullptr,
                       t.gradient.data<G>(), t.p.numel(), t.decay});
    }
    gpu::launch_for_each_list<Item<G>, gpu::kLongList>(
        items, momentum ? sgd_kernel<Momentum, G> : sgd_kernel<Plain, G>, factors, scale);
  });
}

}  // namespace tessera::cuda
