#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/sigmoid.h"
#include "kernels/router/op.h"

namespace tessera::cpu {
namespace {

/// Tokens per chunk of the parallel loops.
constexpr std::int64_t kTokens = 32;

template <typename C>
using Row = std::array<C, kMostExperts>;
using Chosen = std::array<bool, kMostExperts>;

/// A number orders before NaN.
template <typename C>
bool is_larger(C a, C b) {
  return std::isnan(a) ? !std::isnan(b) : a > b;
}

/// The sum of e^(l_e - maximum) over the experts with counts(e), and that maximum.
template <typename C>
struct Softmax {
  C maximum = -INFINITY, sum = 0;

  template <typename Counts>
  Softmax(const Row<C>& logits, std::int64_t experts, const Counts& counts) {
    for (std::int64_t e = 0; e < experts; ++e) {
      if (counts(e)) maximum = is_larger(logits[e], maximum) ? logits[e] : maximum;
    }
    for (std::int64_t e = 0; e < experts; ++e) {
      if (counts(e)) sum += exponential(logits[e] - maximum);
    }
  }
  C operator()(C logit) const { return exponential(logit - maximum) / sum; }
};

/// Marks the k largest keys; of equal keys the first.
template <typename C>
void choose(Chosen& chosen, const Row<C>& keys, std::int64_t experts, std::int64_t k) {
  std::fill_n(chosen.begin(), experts, false);
  for (std::int64_t slot = 0; slot < k; ++slot) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < experts; ++e) {
      if (!chosen[e] && (best < 0 || is_larger(keys[e], keys[best]))) best = e;
    }
    chosen[best] = true;
  }
}

/// The token's weights, for all experts of which `chosen` are.
template <typename C>
void weigh(Row<C>& weights, const Row<C>& logits, const Chosen& chosen, std::int64_t experts,
           RouterWeights kind) {
  if (kind == RouterWeights::sigmoid) {
    for (std::int64_t e = 0; e < experts; ++e) weights[e] = sigmoid(logits[e]);
    return;
  }
  const bool all = kind == RouterWeights::softmax;
  const Softmax<C> softmax(logits, experts, [&](std::int64_t e) { return all || chosen[e]; });
  for (std::int64_t e = 0; e < experts; ++e) {
    weights[e] = all || chosen[e] ? softmax(logits[e]) : C(0);
  }
}

/// Memory of one task.
template <typename C>
struct Scratch {
  Row<C> l{}, w{}, g{};
  Chosen chosen{};
};

template <typename T>
void forward_token(Scratch<compute_t<T>>& scratch, T* weights, std::int32_t* ids, const T* logits,
                   const compute_t<T>* bias, std::int64_t experts, std::int64_t k,
                   RouterWeights kind) {
  auto& [l, w, g, chosen] = scratch;
  for (std::int64_t e = 0; e < experts; ++e) l[e] = load(logits[e]);
  if (bias == nullptr) {
    choose(chosen, l, experts, k);
  } else {
    const bool bounded = kind == RouterWeights::sigmoid;
    weigh(w, l, chosen, experts, bounded ? RouterWeights::sigmoid : RouterWeights::softmax);
    for (std::int64_t e = 0; e < experts; ++e) w[e] += bias[e];
    choose(chosen, w, experts, k);
  }
  weigh(w, l, chosen, experts, kind);
  for (std::int64_t e = 0; e < experts; ++e) {
    if (!chosen[e]) continue;
    store(*weights++, w[e]);
    *ids++ = static_cast<std::int32_t>(e);
  }
}

template <typename T>
void backward_token(Scratch<compute_t<T>>& scratch, T* dlogits, const T* dweights, const T* logits,
                    const std::int32_t* ids, std::int64_t experts, std::int64_t k,
                    RouterWeights kind) {
  using C = compute_t<T>;
  auto& [l, w, g, chosen] = scratch;
  std::fill_n(g.begin(), experts, C(0));
  std::fill_n(chosen.begin(), experts, false);
  for (std::int64_t e = 0; e < experts; ++e) l[e] = load(logits[e]);
  for (std::int64_t slot = 0; slot < k; ++slot) {
    chosen[ids[slot]] = true;
    g[ids[slot]] = load(dweights[slot]);
  }
  weigh(w, l, chosen, experts, kind);
  C mean = 0;
  for (std::int64_t slot = 0; slot < k; ++slot) mean += g[ids[slot]] * w[ids[slot]];
  const bool bounded = kind == RouterWeights::sigmoid;
  for (std::int64_t e = 0; e < experts; ++e) {
    store(dlogits[e], bounded ? g[e] * w[e] * (C(1) - w[e]) : w[e] * (g[e] - mean));
  }
}

}  // namespace

void router_forward(Out weights, Out experts, const Tensor& logits, const Tensor& bias,
                    RouterWeights kind) {
  visit_floating(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::int64_t E = logits.size(1), k = weights.size(1);
    const T* const from = logits.data<T>();
    const auto* const added = bias.defined() ? bias.data<compute_t<T>>() : nullptr;
    T* const w = weights.data<T>();
    auto* const ids = experts.data<std::int32_t>();
    parallel_for(logits.size(0), kTokens, [=](std::int64_t begin, std::int64_t end) {
      Scratch<compute_t<T>> scratch;
      for (std::int64_t n = begin; n < end; ++n) {
        forward_token(scratch, w + n * k, ids + n * k, from + n * E, added, E, k, kind);
      }
    });
  });
}

void router_backward(Out dlogits, const Tensor& dweights, const Tensor& logits,
                     const Tensor& experts, RouterWeights kind) {
  visit_floating(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::int64_t E = logits.size(1), k = dweights.size(1);
    const T *const from = logits.data<T>(), *const dw = dweights.data<T>();
    const auto* const ids = experts.data<std::int32_t>();
    T* const to = dlogits.data<T>();
    parallel_for(logits.size(0), kTokens, [=](std::int64_t begin, std::int64_t end) {
      Scratch<compute_t<T>> scratch;
      for (std::int64_t n = begin; n < end; ++n) {
        backward_token(scratch, to + n * E, dw + n * k, from + n * E, ids + n * k, E, k, kind);
      }
    });
  });
}

}  // namespace tessera::cpu
