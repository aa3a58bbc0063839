#include <algorithm>
#include <cstring>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/magnitude.h"
#include "kernels/fp8/grid.h"

namespace tessera::cpu {
namespace {

template <Fp8Format kFormat>
void round_to(bfloat16* y, const bfloat16* x, std::int64_t count, float scale, float& largest) {
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  parallel_for(count, kElementwiseChunk, [&](std::int64_t begin, std::int64_t end) {
    constexpr Fp8Format format = kFormat;
    std::int32_t most = 0;
#pragma omp simd reduction(max : most)
    for (std::int64_t i = begin; i < end; ++i) most = std::max(most, bits_of_magnitude(load(x[i])));
    raise(largest, most);
    if (scale == 0.0f) {
      if (y != x) std::memcpy(y + begin, x + begin, static_cast<std::size_t>(end - begin) * 2);
      return;
    }
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      store(y[i], inverse * Fp8Grid::of(format).nearest(scale * load(x[i])));
    }
  });
}

}  // namespace

void fp8_round(Out y, const Tensor& x, Fp8Format format, const Tensor& scale, Out largest) {
  const auto run =
      format == Fp8Format::e4m3 ? round_to<Fp8Format::e4m3> : round_to<Fp8Format::e5m2>;
  run(y.data<bfloat16>(), x.data<bfloat16>(), x.numel(), *scale.data<float>(),
      *largest.data<float>());
}

void fp8_record(Out history, Out largest, Out excess, const Tensor& scales, const Tensor& limits) {
  const Fp8History past{history.data<float>(), history.size(0), history.size(1)};
  float* const now = largest.data<float>();
  for (std::int64_t i = 0; i < past.count; ++i) {
    excess.data<float>()[i] = now[i] * scales.data<float>()[i] / limits.data<float>()[i];
    past.enter(i, now[i]);
    now[i] = 0.0f;
  }
}

void fp8_scales(Out scales, const Tensor& history, const Tensor& limits) {
  const Fp8History past{history.data<float>(), history.size(0), history.size(1)};
  for (std::int64_t i = 0; i < past.count; ++i) {
    scales.data<float>()[i] = past.scale(i, limits.data<float>()[i]);
  }
}

}  // namespace tessera::cpu
