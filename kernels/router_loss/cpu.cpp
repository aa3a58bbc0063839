#include <cmath>

#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/router_loss/op.h"
#include "runtime/elementary.h"

namespace tessera::cpu {
namespace {

/// Tokens per chunk of the parallel loops.
constexpr std::int64_t kTokens = 32;

/// The softmax of one token's logits.
template <typename T>
struct Softmax {
  using C = compute_t<T>;
  C maximum = -INFINITY, sum = 0;

  Softmax(const T* logits, std::int64_t experts) {
    for (std::int64_t e = 0; e < experts; ++e) {
      if (load(logits[e]) > maximum) maximum = load(logits[e]);
    }
    for (std::int64_t e = 0; e < experts; ++e) sum += exponential(load(logits[e]) - maximum);
  }
  C operator()(T logit) const { return exponential(load(logit) - maximum) / sum; }
  C logsumexp() const { return maximum + static_cast<C>(logarithm(sum)); }
};

template <typename T>
compute_t<T> weighted_sum(const Softmax<T>& p, const T* logits, const compute_t<T>* factors,
                          std::int64_t experts) {
  compute_t<T> sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) sum += factors[e] * p(logits[e]);
  return sum;
}

}  // namespace

void router_loss_forward(Out loss, const Tensor& logits, const Tensor& factors, double z) {
  visit_floating(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    const std::int64_t E = logits.size(1);
    const auto* const f = factors.data<C>();
    parallel_for(logits.size(0), kTokens, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const T* const row = logits.data<T>() + n * E;
        const Softmax<T> p(row, E);
        const C lse = p.logsumexp();
        loss.data<C>()[n] = weighted_sum(p, row, f, E) + static_cast<C>(z) * lse * lse;
      }
    });
  });
}

void router_loss_backward(Out dlogits, const Tensor& dloss, const Tensor& logits,
                          const Tensor& factors, double z) {
  visit_floating(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    const std::int64_t E = logits.size(1);
    const auto* const f = factors.data<C>();
    parallel_for(logits.size(0), kTokens, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const T* const row = logits.data<T>() + n * E;
        T* const to = dlogits.data<T>() + n * E;
        const Softmax<T> p(row, E);
        const C mean = weighted_sum(p, row, f, E);
        const C slope = C(2) * static_cast<C>(z) * p.logsumexp(), g = dloss.data<C>()[n];
        for (std::int64_t e = 0; e < E; ++e) store(to[e], g * p(row[e]) * (f[e] - mean + slope));
      }
    });
  });
}

}  // namespace tessera::cpu
