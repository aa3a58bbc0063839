#include <vector>

#include "kernels/cpu/multi_tensor.h"
#include "kernels/cpu/numeric.h"
#include "kernels/muon/factors.h"

namespace tessera::cpu {
namespace {

/// Elements of a task: m and the gradient of the first loop are in the cache for the second.
constexpr std::int64_t kChunk = 1 << 13;

// Every multiply-add is written as fma; see kernels/adamw/cpu.cpp.
template <typename G>
void move(float* __restrict__ m, const G* __restrict__ gradient, std::int64_t count,
          const MuonDirectionFactors f) {
  for (std::int64_t i = 0; i < count; ++i) {
    m[i] = std::fma(f.rest, load(gradient[i]) * f.gradient_scale - m[i], m[i]);
  }
}

template <typename D, typename G>
void direct(D* __restrict__ direction, const float* __restrict__ m, const G* __restrict__ gradient,
            std::int64_t count, const MuonDirectionFactors f) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float ahead = std::fma(f.rest, load(gradient[i]) * f.gradient_scale - m[i], m[i]);
    store(direction[i], f.nesterov ? ahead : m[i]);
  }
}

template <typename U>
void apply(float* __restrict__ p, const U* __restrict__ update, std::int64_t count, float step_size,
           float kept) {
  for (std::int64_t i = 0; i < count; ++i) {
    p[i] = std::fma(-step_size, load(update[i]), kept * p[i]);
  }
}

/// The value of a scale that is a tensor; 1 for none.
float value_of(const Tensor& scale) {
  float value = 1.0f;
  if (scale.defined()) on_one_thread([&] { value = *scale.data<float>(); });
  return value;
}

}  // namespace

void muon_direction(std::span<const MuonDirection> ranges, const MuonDirectionSettings& settings,
                    const Tensor& gradient_scale) {
  MuonDirectionFactors factors(settings);
  if (gradient_scale.defined()) factors.gradient_scale = value_of(gradient_scale);
  if (!std::isfinite(factors.gradient_scale)) {
    for (const MuonDirection& range : ranges) {
      if (range.direction.defined()) range.direction.zero();
    }
    return;
  }
  std::vector<std::int64_t> counts;
  for (const MuonDirection& range : ranges) counts.push_back(range.m.numel());
  for_each_chunk(counts, kChunk, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
    const MuonDirection& range = ranges[i];
    float* const m = range.m.data<float>() + begin;
    visit_floating(range.gradient.dtype(), [&](auto from) {
      const auto* const gradient = range.gradient.data<decltype(from)>() + begin;
      move(m, gradient, end - begin, factors);
      if (!range.direction.defined()) return;
      visit_floating(range.direction.dtype(), [&](auto to) {
        direct(range.direction.data<decltype(to)>() + begin, m, gradient, end - begin, factors);
      });
    });
  });
}

void muon_apply(std::span<const MuonUpdate> ranges, const MuonUpdateSettings& settings,
                const Tensor& gradient_scale) {
  const MuonUpdateFactors factors(settings);
  if (!std::isfinite(value_of(gradient_scale))) return;
  std::vector<std::int64_t> counts;
  for (const MuonUpdate& range : ranges) counts.push_back(range.p.numel());
  for_each_chunk(counts, kChunk, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
    const MuonUpdate& range = ranges[i];
    visit_floating(range.update.dtype(), [&](auto type) {
      apply(range.p.data<float>() + begin, range.update.data<decltype(type)>() + begin, end - begin,
            factors.learning_rate * static_cast<float>(range.ratio),
            range.decay ? factors.kept : 1.0f);
    });
  });
}

}  // namespace tessera::cpu
