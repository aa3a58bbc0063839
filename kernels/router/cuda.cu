// A warp routes a token. Lane i has the experts i, i + 32, i + 64, ...
//
// The largest key is found k times: each lane looks through its experts, and the warp reduces the
// lanes' best to one. A bit per expert marks the chosen, so that they are written in ascending order.
// Logits are read again each time, from the first-level cache. Traffic of forward in 16 bits: 2E +
// 6k bytes a token, next to nothing.
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/reduce.h"
#include "kernels/router/op.h"

namespace tessera::cuda {
namespace {

constexpr int kWarps = 4;  // of a block: a token each

__device__ inline float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

/// Unsigned integers in the order of floats; all NaN are the largest, and -0 is 0.
__device__ inline unsigned ordered(float x) {
  if (x != x) return 0xffffffffu;
  const unsigned bits = __float_as_uint(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ inline unsigned warp_max(unsigned value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = max(value, __shfl_xor_sync(gpu::kFullWarp, value, distance));
  }
  return value;
}

/// One token's row of logits, and this lane's chosen experts: bit i is expert 32 i + lane.
template <typename T>
struct Token {
  const T* logits;
  int experts;
  unsigned chosen = 0;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ bool has(int i) const { return chosen >> i & 1; }
  __device__ float logit(int i) const { return gpu::load(logits[32 * i + lane()]); }
  /// Calls f(i, expert) for the lane's experts.
  template <typename F>
  __device__ void for_each(F f) const {
    for (int e = lane(), i = 0; e < experts; e += 32, ++i) f(i, e);
  }

  /// Marks the k experts with the largest keys; of equal keys the lowest. key(i, expert) is a float.
  template <typename F>
  __device__ void choose(int k, F key) {
    for (int slot = 0; slot < k; ++slot) {
      bool any = false;
      unsigned largest = 0, best = 0xffffffffu;
      for_each([&](int i, int e) {
        const unsigned value = ordered(key(i, e));
        if (has(i) || (any && value <= largest)) return;
        any = true, largest = value, best = static_cast<unsigned>(e);
      });
      const unsigned winner = warp_max(any ? largest : 0u);
      const unsigned candidate = any && largest == winner ? best : 0xffffffffu;
      const unsigned expert = ~warp_max(~candidate);
      if (static_cast<int>(expert % 32) == lane()) chosen |= 1u << (expert / 32);
    }
  }
};

/// The weights' denominator: the sum of e^(l - maximum) over the token's experts, or the chosen.
struct Softmax {
  float maximum = -INFINITY, sum = 0.0f;

  template <typename T>
  __device__ Softmax(const Token<T>& token, bool all) {
    token.for_each([&](int i, int) {
      if (all || token.has(i)) maximum = fmaxf(maximum, token.logit(i));
    });
    maximum = gpu::warp_reduce<gpu::Maximum>(maximum);
    token.for_each([&](int i, int) {
      if (all || token.has(i)) sum += expf(token.logit(i) - maximum);
    });
    sum = gpu::warp_reduce<gpu::Sum>(sum);
  }
  __device__ float operator()(float logit) const { return expf(logit - maximum) / sum; }
};

/// The weight of an expert that is chosen, or of any expert for softmax.
struct Weigher {
  RouterWeights kind;
  Softmax softmax;

  template <typename T>
  __device__ Weigher(const Token<T>& token, RouterWeights kind)
      : kind(kind), softmax(token, kind == RouterWeights::softmax) {}
  __device__ float operator()(float logit) const {
    return kind == RouterWeights::sigmoid ? sigmoid(logit) : softmax(logit);
  }
};

/// This warp's token, or `tokens` or more.
__device__ inline std::int64_t token_index() {
  return static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
}

template <typename T>
__global__ void __launch_bounds__(32 * kWarps)
    forward_kernel(T* weights, std::int32_t* ids, const T* logits, const float* bias,
                   std::int64_t tokens, int experts, int k, RouterWeights kind) {
  gpu::wait_for_launch_ahead();
  const std::int64_t n = token_index();
  if (n >= tokens) return;
  Token<T> token{logits + n * experts, experts};
  if (bias == nullptr) {
    token.choose(k, [&](int i, int) { return token.logit(i); });
  } else {
    const Softmax softmax(token, true);
    token.choose(k, [&](int i, int e) {
      const float l = token.logit(i);
      return (kind == RouterWeights::sigmoid ? sigmoid(l) : softmax(l)) + bias[e];
    });
  }
  const Weigher weight(token, kind);
  std::int64_t first = n * k;
  for (int i = 0; 32 * i < experts; ++i) {
    const unsigned lanes = __ballot_sync(gpu::kFullWarp, token.has(i));
    if (token.has(i)) {
      const std::int64_t at = first + __popc(lanes & ((1u << Token<T>::lane()) - 1));
      gpu::store(weights[at], weight(token.logit(i)));
      ids[at] = 32 * i + Token<T>::lane();
    }
    first += __popc(lanes);
  }
}

template <typename T>
__global__ void __launch_bounds__(32 * kWarps)
    backward_kernel(T* dlogits, const T* dweights, const T* logits, const std::int32_t* ids,
                    std::int64_t tokens, int experts, int k, RouterWeights kind) {
  gpu::wait_for_launch_ahead();
  const std::int64_t n = token_index();
  if (n >= tokens) return;
  Token<T> token{logits + n * experts, experts};
  for (int slot = 0; slot < k; ++slot) {
    const int expert = ids[n * k + slot];
    if (expert % 32 == Token<T>::lane()) token.chosen |= 1u << (expert / 32);
  }
  const Weigher weight(token, kind);
  float mean = 0.0f;
  for (int slot = 0; slot < k; ++slot) {
    mean += gpu::load(dweights[n * k + slot]) * weight(gpu::load(token.logits[ids[n * k + slot]]));
  }
  int slot = 0;  // of the lane's next chosen expert, or before it: slots are in ascending order
  token.for_each([&](int i, int e) {
    float g = 0.0f;
    if (token.has(i)) {
      while (ids[n * k + slot] != e) ++slot;
      g = gpu::load(dweights[n * k + slot]);
    }
    const bool counts = token.has(i) || kind == RouterWeights::softmax;
    const float w = counts ? weight(token.logit(i)) : 0.0f;
    gpu::store(dlogits[n * experts + e],
               kind == RouterWeights::sigmoid ? g * w * (1.0f - w) : w * (g - mean));
  });
}

}  // namespace

void router_forward(Out weights, Out experts, const Tensor& logits, const Tensor& bias,
                    RouterWeights kind) {
  if (logits.size(0) == 0) return;
  gpu::visit(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch_early(forward_kernel<T>, dim3(gpu::blocks_for(logits.size(0), kWarps, INT32_MAX)),
                      dim3(32 * kWarps), 0, gpu::stream(), weights.data<T>(),
                      experts.data<std::int32_t>(), logits.data<T>(), gpu::pointer<float>(bias),
                      logits.size(0), static_cast<int>(logits.size(1)),
                      static_cast<int>(weights.size(1)), kind);
  });
}

void router_backward(Out dlogits, const Tensor& dweights, const Tensor& logits,
                     const Tensor& experts, RouterWeights kind) {
  if (logits.size(0) == 0) return;
  gpu::visit(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch_early(backward_kernel<T>, dim3(gpu::blocks_for(logits.size(0), kWarps, INT32_MAX)),
                      dim3(32 * kWarps), 0, gpu::stream(), dlogits.data<T>(), dweights.data<T>(),
                      logits.data<T>(), experts.data<std::int32_t>(), logits.size(0),
                      static_cast<int>(logits.size(1)), static_cast<int>(dweights.size(1)), kind);
  });
}

}  // namespace tessera::cuda
