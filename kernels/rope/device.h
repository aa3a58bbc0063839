// RoPE in device code: a token's angles, and the pairs of channels that a thread holds.
//
// A thread takes as many pairs as 16 bytes hold channels: 16 bytes of the first channels of its pairs
// and 16 of the second (8 pairs in 16 bits).
//
//   half_split    | a a a a a a a a ............ | b b b b b b b b ............ |    one head
//                   thread 0        thread 1       thread 0        thread 1
//   interleaved   | a b a b a b a b  a b a b a b a b | ........................ |
//                   thread 0                           thread 1
//
// Heads that are not aligned are read one element at a time into the same places, so the bits of a
// result do not depend on where the tensors lie.
#pragma once

#include "kernels/cuda/numeric.h"
#include "kernels/rope/op.h"

namespace tessera::cuda {

/// A rotation as device code takes it; none if `cosine` is null.
struct DeviceRotary {
  const float *cosine = nullptr, *sine = nullptr;  // [table_size, head_size / 2]
  RopePairs pairs = RopePairs::half_split;
  std::int64_t table_size = 0, first_position = 0;
  const std::int32_t* positions = nullptr;  // [batch, tokens] or null

  DeviceRotary() = default;
  explicit DeviceRotary(const Rotary& x)
      : cosine(x.table.cosine.data<float>()),
        sine(x.table.sine.data<float>()),
        pairs(x.table.pairs),
        table_size(x.table.cosine.size(0)),
        first_position(x.positions.first) {
    if (x.positions.each.defined()) positions = x.positions.each.data<std::int32_t>();
  }

  /// Token n of all is token `token` of its batch element. The position may be outside the table.
  __device__ std::int64_t position_of(std::int64_t n, int token) const {
    return first_position + (positions != nullptr ? positions[n] : token);
  }
  __device__ bool has(std::int64_t position) const {
    return position >= 0 && position < table_size;
  }
};

/// Pairs of a thread.
template <typename T>
inline constexpr int kPairsOf = gpu::Vector<T>::kSize;

/// values[i] = from[i] for the first `count`, and 0 for the others. Aligned, these are all or none.
template <bool kAligned, int kCount, typename T>
__device__ void load_first(float (&values)[kCount], const T* from, int count) {
  if constexpr (kAligned) {
    if (count > 0) return gpu::load_all(values, from);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = 0.0f;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = i < count ? gpu::load(from[i]) : 0.0f;
  }
}

template <bool kAligned, int kCount, typename T>
__device__ void store_first(T* to, const float (&values)[kCount], int count) {
  if constexpr (kAligned) {
    if (count > 0) gpu::store_all(to, values);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < count) gpu::store(to[i], values[i]);
    }
  }
}

/// The first and second channels of kPairs pairs, from pair `first` of a head with `half` of them.
/// Pairs behind the last read as 0.
template <RopePairs pairs, bool kAligned, int kPairs, typename T>
__device__ void load_pairs(float (&a)[kPairs], float (&b)[kPairs], const T* head, int first,
                           int half) {
  if constexpr (pairs == RopePairs::half_split) {
    load_first<kAligned>(a, head + first, half - first);
    load_first<kAligned>(b, head + half + first, half - first);
  } else {
    float both[2 * kPairs];
    load_first<kAligned>(both, head + 2 * first, 2 * (half - first));
#pragma unroll
    for (int i = 0; i < kPairs; ++i) a[i] = both[2 * i], b[i] = both[2 * i + 1];
  }
}

template <RopePairs pairs, bool kAligned, int kPairs, typename T>
__device__ void store_pairs(T* head, const float (&a)[kPairs], const float (&b)[kPairs], int first,
                            int half) {
  if constexpr (pairs == RopePairs::half_split) {
    store_first<kAligned>(head + first, a, half - first);
    store_first<kAligned>(head + half + first, b, half - first);
  } else {
    float both[2 * kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) both[2 * i] = a[i], both[2 * i + 1] = b[i];
    store_first<kAligned>(head + 2 * first, both, 2 * (half - first));
  }
}

/// Rotates pairs `first` and following by the angles of a position in the table, times `sign`.
template <bool kAligned, int kPairs>
__device__ void rotate(float (&a)[kPairs], float (&b)[kPairs], const DeviceRotary& by,
                       std::int64_t position, int first, int half, float sign) {
  float c[kPairs], s[kPairs];
  load_first<kAligned>(c, by.cosine + position * half + first, half - first);
  load_first<kAligned>(s, by.sine + position * half + first, half - first);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {  // explicit fma: the CPU's bits
    const float sine = sign * s[i], turned = fmaf(a[i], c[i], -(b[i] * sine));
    b[i] = fmaf(b[i], c[i], a[i] * sine);
    a[i] = turned;
  }
}

}  // namespace tessera::cuda
