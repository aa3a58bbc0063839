// Conversion between stored and computed values in device code.
#pragma once

#include <type_traits>

#include "kernels/cuda/language.h"
#include "runtime/half.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace tessera::gpu {

__device__ inline float load(float value) {
  return value;
}
__device__ inline float load(bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}
__device__ inline float load(float16 value) {
#if defined(__CUDACC__)
  return __half2float(__ushort_as_half(value.bits));
#else
  return static_cast<float>(value);
#endif
}

/// Rounds to nearest, ties to even.
__device__ inline void store(float& to, float value) {
  to = value;
}
__device__ inline void store(bfloat16& to, float value) {
#if defined(__CUDACC__)
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
  to = bfloat16(value);
#endif
}
__device__ inline void store(float16& to, float value) {
#if defined(__CUDACC__)
  to.bits = __half_as_ushort(__float2half_rn(value));
#else
  to = float16(value);
#endif
}

/// The value that memory of T holds after `value` is stored there.
template <typename T>
__device__ float rounded(float value) {
  T stored;
  store(stored, value);
  return load(stored);
}

/// 2^x in one instruction, within 2 units in the last place of f32. Results below 2^-126 are 0.
__device__ inline float fast_exp2(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return emulation::approximate_exp2(x);
#endif
}

/// 1 / x for x in [1, infinity] in one instruction, within 1 unit in the last place of a float;
/// results below 2^-126 are 0.
__device__ inline float fast_reciprocal(float x) {
#if defined(__CUDACC__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return emulation::approximate_reciprocal(x);
#endif
}

/// a b, rounded by itself: not a part of a fused multiply-add.
__device__ inline float product(float a, float b) {
#if defined(__CUDACC__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

/// `value`, hidden from the compiler's optimizer. Computations on it inside a loop are not hoisted
/// out of the loop, where their results would fill registers.
__device__ inline unsigned unhoisted(unsigned value) {
#if defined(__CUDACC__)
  asm volatile("" : "+r"(value));
#endif
  return value;
}

/// Two values as 16-bit T in one word, `low` in the lower half: an operand of tensor cores.
template <typename T>
__device__ unsigned pack(float low, float high) {
#if defined(__CUDACC__)
  // One conversion for both (cvt.rn.bf16x2.f32, cvt.rn.f16x2.f32).
  unsigned word;
  if constexpr (std::is_same_v<T, bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&word, &pair, sizeof word);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    memcpy(&word, &pair, sizeof word);
  }
  return word;
#else
  return T(low).bits | static_cast<unsigned>(T(high).bits) << 16;
#endif
}
/// The values of such a word.
template <typename T>
__device__ float2 unpack(unsigned word) {
  T pair[2];
  memcpy(static_cast<void*>(pair), &word, sizeof word);
  return {load(pair[0]), load(pair[1])};
}

/// The values that memory of T holds after these are stored there. One conversion rounds two to 16 bits.
template <typename T, int count>
__device__ void round_all(float (&values)[count]) {
  if constexpr (sizeof(T) == 2 && count % 2 == 0) {
#pragma unroll
    for (int i = 0; i < count; i += 2) {
      const float2 pair = unpack<T>(pack<T>(values[i], values[i + 1]));
      values[i] = pair.x;
      values[i + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = rounded<T>(values[i]);
  }
}

/// 16 bytes of T as floats: one load or store instruction. Addresses must be multiples of 16.
template <typename T>
struct Vector {
  static constexpr int kSize = 16 / sizeof(T);
  float values[kSize];

  __device__ static Vector load(const T* source) { return unpack(load_raw(source)); }
  __device__ static uint4 load_raw(const T* source) {
    return *reinterpret_cast<const uint4*>(source);
  }
  __device__ static Vector unpack(const uint4& raw) {
    Vector result;
    if constexpr (std::is_same_v<T, bfloat16>) {
      // A float's upper half: one instruction for either of a word's two.
      const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        result.values[2 * i] = __uint_as_float(words[i] << 16);
        result.values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
      }
    } else {
      T elements[kSize];
      memcpy(static_cast<void*>(elements), &raw, 16);
#pragma unroll
      for (int i = 0; i < kSize; ++i) result.values[i] = gpu::load(elements[i]);
    }
    return result;
  }
  __device__ uint4 pack() const {
    T elements[kSize];
#pragma unroll
    for (int i = 0; i < kSize; ++i) gpu::store(elements[i], values[i]);
    uint4 raw;
    memcpy(&raw, elements, 16);
    return raw;
  }
  __device__ void store(T* destination) const {
    *reinterpret_cast<uint4*>(destination) = pack();
  }
  /// The same in one instruction, where the compiler would make four: it does not know that the memory is global.
  __device__ void store_at_once(T* destination) const {
#if defined(__CUDACC__)
    const uint4 raw = pack();
    asm volatile(
        "st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(destination)),
        "r"(raw.x), "r"(raw.y), "r"(raw.z), "r"(raw.w)
        : "memory");
#else
    store(destination);
#endif
  }
};

/// Loads `count` elements as floats: one element, or whole 16-byte vectors.
template <int count, typename T>
__device__ void load_all(float (&values)[count], const T* source) {
  if constexpr (count == 1) {
    values[0] = load(*source);
  } else {
    static_assert(count % Vector<T>::kSize == 0,
                  "count must be 1 or a multiple of a vector's size");
#pragma unroll
    for (int i = 0; i < count; i += Vector<T>::kSize) {
      const auto vector = Vector<T>::load(source + i);
#pragma unroll
      for (int j = 0; j < Vector<T>::kSize; ++j) values[i + j] = vector.values[j];
    }
  }
}
template <int count, typename T>
__device__ void store_all(T* destination, const float (&values)[count]) {
  if constexpr (count == 1) {
    store(*destination, values[0]);
  } else {
    static_assert(count % Vector<T>::kSize == 0,
                  "count must be 1 or a multiple of a vector's size");
#pragma unroll
    for (int i = 0; i < count; i += Vector<T>::kSize) {
      Vector<T> vector;
#pragma unroll
      for (int j = 0; j < Vector<T>::kSize; ++j) vector.values[j] = values[i + j];
      vector.store(destination + i);
    }
  }
}

/// Whether every row of `columns` elements at `data` can be read in 16-byte vectors.
template <typename T>
bool is_vectorizable(const T* data, std::int64_t columns) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && columns % Vector<T>::kSize == 0;
}

}  // namespace tessera::gpu
