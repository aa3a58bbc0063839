// Squares of vectors, transposed in registers.
//
// The functions are always inlined: the caller's instruction set is theirs.
#pragma once

#include <utility>

namespace tessera::cpu {

/// The lanes of two vectors in turn: a[kFirst], b[kFirst], a[kFirst + 1], ...
template <int kFirst, typename Vector, int... kLane>
[[gnu::always_inline]] inline void interleave(Vector& to, const Vector& a, const Vector& b,
                                              std::integer_sequence<int, kLane...>) {
  constexpr int kLanes = sizeof...(kLane);
  to = __builtin_shufflevector(a, b, (kFirst + kLane / 2 + kLane % 2 * kLanes)...);
}

/// Transposes a square of kLanes vectors with kLanes elements: log2(kLanes) perfect shuffles of its rows.
template <typename Vector, int kLanes>
[[gnu::always_inline]] inline void transpose(Vector (&rows)[kLanes]) {
  constexpr std::make_integer_sequence<int, kLanes> kSequence;
#pragma GCC unroll 4
  for (int stage = 1; stage < kLanes; stage *= 2) {
    Vector next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      interleave<0>(next[2 * i], rows[i], rows[i + kLanes / 2], kSequence);
      interleave<kLanes / 2>(next[2 * i + 1], rows[i], rows[i + kLanes / 2], kSequence);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

}  // namespace tessera::cpu
