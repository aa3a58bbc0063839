// Muon's elementwise passes over all ranges of a call in one launch.
//
// kernels/adamw/cuda.cu draws which thread takes which elements. Traffic per element: m or p read and
// written (8 bytes), the gradient or the update read, the direction written (2 bytes in bf16).
#include "kernels/cuda/multi_tensor.h"
#include "kernels/cuda/step_value.h"
#include "kernels/muon/factors.h"

namespace tessera::cuda {
namespace {

template <typename G, typename D>
struct DirectionItem {
  float* m;
  const G* gradient;
  D* direction;  // null: not needed
  std::int64_t count;

  __device__ bool has_quads() const { return gpu::are_quads(m, gradient, direction); }
};

template <typename U>
struct UpdateItem {
  float* p;
  const U* update;
  std::int64_t count;
  float ratio;
  bool decay;

  __device__ bool has_quads() const { return gpu::are_quads(p, update); }
};

/// The formulas of cpu.cpp, operation by operation: the same bits. Returns the direction.
__device__ float move(float& m, float gradient, const MuonDirectionFactors& f) {
  const float g = gradient * f.gradient_scale;
  m = fmaf(f.rest, g - m, m);
  return f.nesterov ? fmaf(f.rest, g - m, m) : m;
}

template <typename G, typename D>
__global__ void __launch_bounds__(gpu::kThreads) muon_direction_kernel(
    const __grid_constant__ gpu::TensorList<DirectionItem<G, D>, gpu::kLongList> list,
    MuonDirectionFactors f, const float* gradient_scale) {
  if (gradient_scale != nullptr) f.gradient_scale = *gradient_scale;
  const bool moves = isfinite(f.gradient_scale);
  const auto chunk = gpu::Chunk<DirectionItem<G, D>>::of_block(list);
  const DirectionItem<G, D>& t = chunk.item;
  const auto four = [&](std::int64_t i) {
    auto m = gpu::Quad<float>::load(t.m + i);
    const auto gradient = gpu::Quad<G>::load(t.gradient + i);
    gpu::Quad<D> direction{};
    if (moves) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        direction.values[j] = move(m.values[j], gradient.values[j], f);
      }
      m.store(t.m + i);
    }
    if (t.direction != nullptr) direction.store(t.direction + i);
  };
  const auto one = [&](std::int64_t i) {
    const float direction = moves ? move(t.m[i], gpu::load(t.gradient[i]), f) : 0.0f;
    if (t.direction != nullptr) gpu::store(t.direction[i], direction);
  };
  chunk.for_each(four, one);
}

template <typename U>
__global__ void __launch_bounds__(gpu::kThreads)
    muon_apply_kernel(const __grid_constant__ gpu::TensorList<UpdateItem<U>, gpu::kLongList> list,
                      StepValue<MuonUpdateFactors> factors, const float* gradient_scale) {
  if (gradient_scale != nullptr && !isfinite(*gradient_scale)) return;
  const MuonUpdateFactors f = gpu::current(factors);
  const auto chunk = gpu::Chunk<UpdateItem<U>>::of_block(list);
  const UpdateItem<U>& t = chunk.item;
  const float step_size = f.learning_rate * t.ratio, kept = t.decay ? f.kept : 1.0f;
  const auto four = [&](std::int64_t i) {
    auto p = gpu::Quad<float>::load(t.p + i);
    const auto update = gpu::Quad<U>::load(t.update + i);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      p.values[j] = fmaf(-step_size, update.values[j], kept * p.values[j]);
    }
    p.store(t.p + i);
  };
  const auto one = [&](std::int64_t i) {
    t.p[i] = fmaf(-step_size, gpu::load(t.update[i]), kept * t.p[i]);
  };
  chunk.for_each(four, one);
}

/// f(T{}) for the dtypes in which matrices are orthogonalized.
template <typename F>
void visit_exchanged(DType dtype, const F& f) {
  dtype == DType::bf16 ? f(bfloat16{}) : f(float{});
}

}  // namespace

void muon_direction(std::span<const MuonDirection> ranges, const MuonDirectionSettings& settings,
                    const Tensor& gradient_scale) {
  const MuonDirectionFactors factors(settings);
  const float* const scale = gpu::pointer<float>(gradient_scale);
  DType exchanged = DType::f32;
  for (const MuonDirection& range : ranges) {
    if (range.direction.defined()) exchanged = range.direction.dtype();
  }
  gpu::visit(ranges.front().gradient.dtype(), [&](auto from) {
    visit_exchanged(exchanged, [&](auto to) {
      using G = decltype(from);
      using D = decltype(to);
      std::vector<DirectionItem<G, D>> items;
      for (const MuonDirection& range : ranges) {
        items.push_back({range.m.data<float>(), range.gradient.data<G>(),
                         gpu::pointer<D>(range.direction), range.m.numel()});
      }
      gpu::launch_for_each_list<DirectionItem<G, D>, gpu::kLongList>(
          items, muon_direction_kernel<G, D>, factors, scale);
    });
  });
}

void muon_apply(std::span<const MuonUpdate> ranges, const MuonUpdateSettings& settings,
                const Tensor& gradient_scale) {
  const auto factors =
      step_value(MuonUpdateFactors(settings), [settings](const StepNumbers& numbers) {
        MuonUpdateSettings now = settings;
        now.learning_rate = numbers.learning_rates.at(settings.optimizer);
        return MuonUpdateFactors(now);
      });
  const float* const scale = gpu::pointer<float>(gradient_scale);
  visit_exchanged(ranges.front().update.dtype(), [&](auto type) {
    using U = decltype(type);
    std::vector<UpdateItem<U>> items;
    for (const MuonUpdate& range : ranges) {
      items.push_back({range.p.data<float>(), range.update.data<U>(), range.p.numel(),
                       static_cast<float>(range.ratio), range.decay});
    }
    gpu::launch_for_each_list<UpdateItem<U>, gpu::kLongList>(items, muon_apply_kernel<U>, factors,
                                                             scale);
  });
}

}  // namespace tessera::cuda
