// Sums with the same bits at any width of a CPU's vectors.
//
// A sum has 16 lanes. Lane i adds elements i, i + 16, i + 32, ... in order. At the end the lanes
// are added in pairs: i and i + 8, then i and i + 4, and so on. AVX-512 holds the lanes of floats
// in one register, AVX2 in two.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tessera::cpu {

inline constexpr int kLanes = 16;

/// A sum of C, which is float or double.
template <typename C>
class LaneSum {
 public:
  /// Adds next[i] to lane i.
  void add(const C (&next)[kLanes]) {
    Vector vector;
    std::memcpy(&vector, next, sizeof(vector));
    lanes_ += vector;
  }
  C total() const {
    C sums[kLanes];
    std::memcpy(sums, &lanes_, sizeof(sums));
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    return sums[0];
  }

 private:
  typedef C Vector __attribute__((vector_size(kLanes * static_cast<int>(sizeof(C)))));
  Vector lanes_{};
};

/// Calls f(i, count) for elements [i, i + count) of n. `count` is the constant kLanes, but for the
/// last elements fewer.
template <typename F>
void for_each_lanes(std::int64_t n, const F& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, std::integral_constant<int, kLanes>{});
  if (i < n) f(i, static_cast<int>(n - i));
}

/// f(0) + f(1) + ... + f(n - 1).
template <typename C, typename F>
C sum_of(std::int64_t n, const F& f) {
  LaneSum<C> sum;
  for_each_lanes(n, [&](std::int64_t i, auto count) {
    C next[kLanes] = {};
#pragma omp simd
    for (int j = 0; j < count; ++j) next[j] = f(i + j);
    sum.add(next);
  });
  return sum.total();
}

}  // namespace tessera::cpu
