#include <algorithm>
#include <array>

#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cross_entropy/exponentials.h"
#include "kernels/cross_entropy/gradient_rows.h"
#include "kernels/cross_entropy/op.h"
#include "kernels/cross_entropy/row_targets.h"
#include "kernels/cross_entropy/targets.h"
#include "runtime/check.h"
#include "runtime/elementary.h"

namespace tessera::cpu {
namespace {

/// logsumexp(logits) = maximum + log_of_sum, in two parts. A loss is the difference of two logits
/// plus log_of_sum; it would lose digits if the maximum were added first.
template <typename C>
struct LogSumExp {
  C maximum = 0;
  C log_of_sum = 0;
};

template <typename T>
LogSumExp<compute_t<T>> log_sum_exp(const T* logits, std::int64_t classes) {
  const compute_t<T> largest = maximum(logits, classes);
  const double total = sum_of_exponentials(logits, classes, largest);
  return {largest, static_cast<compute_t<T>>(logarithm(total))};
}

template <typename T>
compute_t<T> loss_of_row(const T* row, std::int64_t classes, const LogSumExp<compute_t<T>>& sum,
                         const RowTargets& targets) {
  if (targets.ignored()) return compute_t<T>{0};
  return (sum.maximum - targets.logit(row, classes)) + sum.log_of_sum;
}

template <typename T>
void forward(Out loss, Out logsumexp, const Tensor& logits, const TargetsOfRows& targets) {
  using C = compute_t<T>;
  const std::int64_t classes = logits.size(1);
  const T* const x = logits.data<T>();
  C* const losses = loss.data<C>();
  C* const sums = logsumexp.data<C>();
  parallel_for(logits.size(0), rows_per_chunk(classes), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const T* const row = x + n * classes;
      const LogSumExp<C> sum = log_sum_exp(row, classes);
      sums[n] = sum.maximum + sum.log_of_sum;
      losses[n] = loss_of_row(row, classes, sum, targets[n]);
    }
  });
}

/// One row of dlogits, which may be the row of logits itself.
template <typename G, typename T>
void backward_row(G* dlogits, const T* logits, std::int64_t classes, compute_t<T> dloss,
                  compute_t<T> logsumexp, const RowTargets& targets) {
  using C = compute_t<T>;
  if (targets.ignored()) {
    std::fill_n(dlogits, classes, G{});
    return;
  }
  // Read before the row is overwritten.
  std::array<C, kMostTargets> at_targets;
  targets.for_each(classes, [&](std::int64_t k, std::int64_t column) {
    const C weight = targets.weight(k);
    at_targets[static_cast<std::size_t>(k)] =
        exponential(load(logits[column]) - logsumexp) - weight;
  });
#pragma omp simd
  for (std::int64_t v = 0; v < classes; ++v) {
    store_as(dlogits[v], dloss * exponential(load(logits[v]) - logsumexp));
  }
  targets.for_each(classes, [&](std::int64_t k, std::int64_t column) {
    store_as(dlogits[column], dloss * at_targets[static_cast<std::size_t>(k)]);
  });
}

template <typename T>
void backward(Out dlogits, const Tensor& dloss, const Tensor& logits, const Tensor& logsumexp,
              const TargetsOfRows& targets) {
  using C = compute_t<T>;
  const std::int64_t classes = logits.size(1);
  const T* const x = logits.data<T>();
  const C* const factors = dloss.data<C>();
  const C* const sums = logsumexp.data<C>();
  T* const dx = dlogits.data<T>();
  parallel_for(logits.size(0), rows_per_chunk(classes), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      backward_row(dx + n * classes, x + n * classes, classes, factors[n], sums[n], targets[n]);
    }
  });
}

template <typename G, typename T>
void losses_and_gradients(Out losses, Out dlogits, const Tensor& logits,
                          const TargetsOfRows& targets, T scale, const Tensor& factors) {
  const std::int64_t classes = logits.size(1);
  const T* const x = logits.data<T>();
  const T* const factor = factors.defined() ? factors.data<T>() : nullptr;
  T* const loss = losses.data<T>();
  G* const dx = dlogits.data<G>();
  parallel_for(logits.size(0), rows_per_chunk(classes), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const T* const row = x + n * classes;
      const LogSumExp<T> sum = log_sum_exp(row, classes);
      loss[n] = loss_of_row(row, classes, sum, targets[n]);
      backward_row(dx + n * classes, row, classes, factor == nullptr ? scale : scale * factor[n],
                   sum.maximum + sum.log_of_sum, targets[n]);
    }
  });
}

}  // namespace

void check_targets(std::string_view op, const Targets& targets, std::int64_t classes,
                   int ignore_index) {
  const auto* const target = targets.classes.data<std::int32_t>();
  const std::int64_t each = targets.each();
  on_one_thread([&] {
    for (std::int64_t i = 0; i < targets.classes.numel(); ++i) {
      check(target[i] == ignore_index || (target[i] >= 0 && target[i] < classes),
            "{}: targets[{}] is {}, which is neither a class in [0, {}) nor ignore_index {}", op,
            i / each, target[i], classes, ignore_index);
    }
  });
}

void cross_entropy_forward(Out loss, Out logsumexp, const Tensor& logits, const Targets& targets,
                           int ignore_index) {
  check_targets("cross_entropy_forward", targets, logits.size(1), ignore_index);
  visit_floating(logits.dtype(), [&](auto type) {
    forward<decltype(type)>(loss, logsumexp, logits, TargetsOfRows(targets, ignore_index));
  });
}

void cross_entropy_backward(Out dlogits, const Tensor& dloss, const Tensor& logits,
                            const Tensor& logsumexp, const Targets& targets, int ignore_index) {
  check_targets("cross_entropy_backward", targets, logits.size(1), ignore_index);
  visit_floating(logits.dtype(), [&](auto type) {
    backward<decltype(type)>(dlogits, dloss, logits, logsumexp,
                             TargetsOfRows(targets, ignore_index));
  });
}

void losses_and_gradients(Out losses, Out dlogits, const Tensor& logits, const Targets& targets,
                          double scale, const Tensor& factors, int ignore_index) {
  const auto compute = [&](auto type, auto factor) {
    losses_and_gradients<decltype(type)>(losses, dlogits, logits,
                                         TargetsOfRows(targets, ignore_index), factor, factors);
  };
  const auto rounded = static_cast<float>(scale);
  if (logits.dtype() == DType::f64) return compute(double(), scale);
  dlogits.dtype() == DType::bf16 ? compute(bfloat16(), rounded) : compute(float(), rounded);
}

}  // namespace tessera::cpu
