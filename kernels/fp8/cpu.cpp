#include <algorithm>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/magnitude.h"
#include "kernels/fp8/grid.h"

namespace tessera::cpu {
namespace {

/// f(format) with the format's numbers as constants.
template <typename F>
void visit_format(DType format, const F& f) {
  if (format == DType::e4m3) return f([] { return Fp8Grid::of(DType::e4m3); });
  f([] { return Fp8Grid::of(DType::e5m2); });
}

std::uint8_t* codes_of(const Tensor& y) {
  return reinterpret_cast<std::uint8_t*>(y.raw());
}

template <typename T>
void quantize(Out y, Out yt, const Tensor& x, const Tensor& scale_at, Out largest) {
  visit_format((y.defined() ? y : yt).dtype(), [&](auto grid) {
    const T* const from = x.data<T>();
    const auto value = [&](std::int64_t i) { return load(static_cast<bfloat16>(from[i])); };
    parallel_for(x.numel(), kElementwiseChunk, [&](std::int64_t begin, std::int64_t end) {
      const float scale = *scale_at.data<float>();
      std::int32_t most = 0;
#pragma omp simd reduction(max : most)
      for (std::int64_t i = begin; i < end; ++i) {
        most = std::max(most, bits_of_magnitude(value(i)));
      }
      raise(*largest.data<float>(), most);
      if (y.defined()) {
        std::uint8_t* const to = codes_of(y);
        for (std::int64_t i = begin; i < end; ++i) to[i] = grid().nearest(scale * value(i));
      }
      if (!yt.defined()) return;
      const std::int64_t rows = x.size(0), columns = x.size(1);
      for (std::int64_t i = begin; i < end; ++i) {
        codes_of(yt)[i % columns * rows + i / columns] = grid().nearest(scale * value(i));
      }
    });
  });
}

}  // namespace

void fp8_quantize(Out y, Out yt, const Tensor& x, const Tensor& scale, Out largest) {
  x.dtype() == DType::f32 ? quantize<float>(y, yt, x, scale, largest)
                          : quantize<bfloat16>(y, yt, x, scale, largest);
}

void fp8_expand(Out x, const Tensor& y, const Tensor& inverse_at) {
  visit_format(y.dtype(), [&](auto grid) {
    auto* const to = x.data<bfloat16>();
    const std::uint8_t* const from = codes_of(y);
    parallel_for(x.numel(), kElementwiseChunk, [&](std::int64_t begin, std::int64_t end) {
      const float inverse = *inverse_at.data<float>();
      for (std::int64_t i = begin; i < end; ++i) store(to[i], inverse * grid().value_of(from[i]));
    });
  });
}

void fp8_transpose(Out yt, const Tensor& y) {
  const std::int64_t rows = y.size(0), columns = y.size(1);
  parallel_for(columns, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t column = begin; column < end; ++column) {
      for (std::int64_t row = 0; row < rows; ++row) {
        codes_of(yt)[column * rows + row] = codes_of(y)[row * columns + column];
      }
    }
  });
}

void fp8_record(Out history, Out largest, Out excess, const Tensor& scales, const Tensor& limits) {
  const Fp8History past{history.data<float>(), history.size(0), history.size(1)};
  parallel_for(past.count, kElementwiseChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float& now = largest.data<float>()[i];
      excess.data<float>()[i] = now * scales.data<float>()[i] / limits.data<float>()[i];
      past.enter(i, now);
      now = 0.0f;
    }
  });
}

void fp8_scales(Out scales, Out inverses, const Tensor& history, const Tensor& limits) {
  const Fp8History past{history.data<float>(), history.size(0), history.size(1)};
  parallel_for(past.count, kElementwiseChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float scale = past.scale(i, limits.data<float>()[i]);
      scales.data<float>()[i] = scale;
      inverses.data<float>()[i] = 1.0f / scale;
    }
  });
}

}  // namespace tessera::cpu
