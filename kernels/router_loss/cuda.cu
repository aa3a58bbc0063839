// A warp has a token and reads its logits three times, from memory once.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/reduce.h"
#include "kernels/router_loss/op.h"

namespace tessera::cuda {
namespace {

constexpr int kWarps = 4;  // of a block: a token each

/// The softmax of one token's logits; the warp's lanes share the experts.
template <typename T>
struct Softmax {
  const T* logits;
  int experts;
  float maximum = -INFINITY, sum = 0.0f;

  __device__ Softmax(const T* logits, int experts) : logits(logits), experts(experts) {
    for_each([&](int e) { maximum = fmaxf(maximum, logit(e)); });
    maximum = gpu::warp_reduce<gpu::Maximum>(maximum);
    for_each([&](int e) { sum += expf(logit(e) - maximum); });
    sum = gpu::warp_reduce<gpu::Sum>(sum);
  }
  /// Calls f(e) for the lane's experts.
  template <typename F>
  __device__ void for_each(F f) const {
    for (int e = static_cast<int>(threadIdx.x % 32); e < experts; e += 32) f(e);
  }
  __device__ float logit(int e) const { return gpu::load(logits[e]); }
  __device__ float operator()(int e) const { return expf(logit(e) - maximum) / sum; }
  __device__ float logsumexp() const { return maximum + logf(sum); }
  __device__ float weighted_sum(const float* factors) const {
    float total = 0.0f;
    for_each([&](int e) { total += factors[e] * (*this)(e); });
    return gpu::warp_reduce<gpu::Sum>(total);
  }
};

template <typename T>
__global__ void __launch_bounds__(32 * kWarps)
    forward_kernel(float* loss, const T* logits, const float* factors, std::int64_t tokens,
                   int experts, float z) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (n >= tokens) return;
  const Softmax<T> p(logits + n * experts, experts);
  const float sum = p.weighted_sum(factors), logsumexp = p.logsumexp();
  if (threadIdx.x % 32 == 0) loss[n] = sum + z * logsumexp * logsumexp;
}

template <typename T>
__global__ void __launch_bounds__(32 * kWarps)
    backward_kernel(T* dlogits, const float* dloss, const T* logits, const float* factors,
                    std::int64_t tokens, int experts, float z) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (n >= tokens) return;
  const Softmax<T> p(logits + n * experts, experts);
  const float mean = p.weighted_sum(factors), slope = 2.0f * z * p.logsumexp();
  p.for_each([&](int e) {
    gpu::store(dlogits[n * experts + e], dloss[n] * p(e) * (factors[e] - mean + slope));
  });
}

}  // namespace

void router_loss_forward(Out loss, const Tensor& logits, const Tensor& factors, double z) {
  if (logits.size(0) == 0) return;
  gpu::visit(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch(forward_kernel<T>, dim3(gpu::blocks_for(logits.size(0), kWarps, INT32_MAX)),
                dim3(32 * kWarps), 0, gpu::stream(), loss.data<float>(), logits.data<T>(),
                factors.data<float>(), logits.size(0), static_cast<int>(logits.size(1)),
                static_cast<float>(z));
  });
}

void router_loss_backward(Out dlogits, const Tensor& dloss, const Tensor& logits,
                          const Tensor& factors, double z) {
  if (logits.numel() == 0) return;
  gpu::visit(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch(backward_kernel<T>, dim3(gpu::blocks_for(logits.size(0), kWarps, INT32_MAX)),
                dim3(32 * kWarps), 0, gpu::stream(), dlogits.data<T>(), dloss.data<float>(),
                logits.data<T>(), factors.data<float>(), logits.size(0),
                static_cast<int>(logits.size(1)), static_cast<float>(z));
  });
}

}  // namespace tessera::cuda
