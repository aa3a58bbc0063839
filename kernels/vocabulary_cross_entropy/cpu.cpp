#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cross_entropy/exponentials.h"
#include "kernels/cross_entropy/row_targets.h"
#include "kernels/cross_entropy/targets.h"
#include "kernels/reduce/op.h"
#include "kernels/scale/op.h"
#include "kernels/vocabulary_cross_entropy/op.h"
#include "kernels/vocabulary_cross_entropy/row.h"
#include "runtime/category.h"
#include "runtime/elementary.h"

namespace tessera::cpu {
namespace {

/// Rows per chunk of loops over statistics.
constexpr std::int64_t kChunk = 1024;
/// Every class that an i32 can name.
constexpr std::int64_t kMostClasses = std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1;

/// The statistics of one part's row.
template <typename T>
RowStatistics<compute_t<T>> statistics_of(const T* logits, std::int64_t classes,
                                          const RowTargets& targets) {
  using C = compute_t<T>;
  const C largest = maximum(logits, classes);
  // With a maximum of minus infinity the exponents would be NaN.
  const C reference = largest == -std::numeric_limits<C>::infinity() ? C{0} : largest;
  return {largest, static_cast<C>(sum_of_exponentials(logits, classes, reference)),
          targets.logit(logits, classes)};
}

template <typename T>
void statistics_of_parts(Out statistics, const Tensor& logits, const Targets& targets,
                         std::int64_t first_class, std::int64_t parts, int ignore_index) {
  using C = compute_t<T>;
  const std::int64_t rows = logits.size(0), classes = logits.size(1) / parts;
  const T* const x = logits.data<T>();
  auto* const to = reinterpret_cast<RowStatistics<C>*>(statistics.data<C>());
  parallel_for(
      rows * parts, rows_per_chunk(classes), [=, &targets](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t n = i / parts, part = i % parts;
          to[part * rows + n] =
              statistics_of(x + i * classes, classes,
                            TargetsOfRows(targets, ignore_index, first_class + part * classes)[n]);
        }
      });
}

template <typename C>
RowStatistics<C> combine(const RowStatistics<C>& a, const RowStatistics<C>& b) {
  // A maximum of NaN cannot be: maximum() passes NaN over, and the sum has it.
  const C largest = std::max(a.maximum, b.maximum);
  const auto rescaled = [&](const RowStatistics<C>& x) {  // both may be minus infinity
    return x.maximum == largest ? x.sum : x.sum * exponential(x.maximum - largest);
  };
  return {largest, rescaled(a) + rescaled(b), a.target + b.target};
}

/// The tree over `parts` rows of statistics that lie `stride` apart.
template <typename C>
RowStatistics<C> combined_of(const RowStatistics<C>* first, std::int64_t parts,
                             std::int64_t stride) {
  if (parts == 1) return *first;
  const std::int64_t half = parts / 2;
  return combine(combined_of(first, half, stride),
                 combined_of(first + half * stride, half, stride));
}

template <typename C>
void combine_all(Out combined, const Tensor& statistics) {
  const std::int64_t parts = statistics.size(0), rows = statistics.size(1);
  const auto* const from = reinterpret_cast<const RowStatistics<C>*>(statistics.data<C>());
  auto* const to = reinterpret_cast<RowStatistics<C>*>(combined.data<C>());
  parallel_for(rows, kChunk, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) to[n] = combined_of(from + n, parts, rows);
  });
}

template <typename C>
void losses_of(Out losses, const Tensor& combined, const TargetsOfRows& targets) {
  const auto* const from = reinterpret_cast<const RowStatistics<C>*>(combined.data<C>());
  C* const to = losses.data<C>();
  parallel_for(losses.numel(), kChunk, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const RowStatistics<C>& row = from[n];
      // The difference first: it would lose digits if the logarithm were added to the maximum.
      const C log_of_sum = static_cast<C>(logarithm(static_cast<double>(row.sum)));
      to[n] = targets[n].ignored() ? C{0} : (row.maximum - row.target) + log_of_sum;
    }
  });
}

/// One row of dlogits, which may be the row of logits.
template <typename G, typename T>
void gradient_of_row(G* dlogits, const T* logits, std::int64_t classes,
                     const RowStatistics<compute_t<T>>& row, const RowTargets& targets,
                     compute_t<T> scale) {
  using C = compute_t<T>;
  // The loop is vectorized only if it reads no memory that dlogits may overlap, except logits.
  const C largest = row.maximum, inverse = C{1} / row.sum;
  // Read before the row is overwritten.
  std::array<C, kMostTargets> at_targets;
  targets.for_each(classes, [&](std::int64_t k, std::int64_t column) {
    at_targets[static_cast<std::size_t>(k)] = exponential(load(logits[column]) - largest);
  });
#pragma omp simd
  for (std::int64_t v = 0; v < classes; ++v) {
    store_as(dlogits[v], scale * (exponential(load(logits[v]) - largest) * inverse));
  }
  targets.for_each(classes, [&](std::int64_t k, std::int64_t column) {
    const C weight = targets.weight(k);
    store_as(dlogits[column], scale * (at_targets[static_cast<std::size_t>(k)] * inverse - weight));
  });
}

template <typename G, typename T>
void gradients(Out dlogits, const Tensor& logits, const Tensor& combined,
               const TargetsOfRows& targets, double loss_scale, const Tensor& factors) {
  using C = compute_t<T>;
  const std::int64_t classes = logits.size(1);
  const T* const x = logits.data<T>();
  const auto* const rows = reinterpret_cast<const RowStatistics<C>*>(combined.data<C>());
  G* const dx = dlogits.data<G>();
  const C* const factor = factors.defined() ? factors.data<C>() : nullptr;
  const C scale = static_cast<C>(loss_scale);
  parallel_for(logits.size(0), rows_per_chunk(classes), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      if (targets[n].ignored()) {
        std::fill_n(dx + n * classes, classes, G{});
      } else {
        gradient_of_row(dx + n * classes, x + n * classes, classes, rows[n], targets[n],
                        factor == nullptr ? scale : scale * factor[n]);
      }
    }
  });
}

}  // namespace

void vocabulary_statistics(Out statistics, const Tensor& logits, const Targets& targets,
                           std::int64_t first_class, std::int64_t parts, int ignore_index) {
  check_targets("vocabulary_statistics", targets, kMostClasses, ignore_index);
  visit_floating(logits.dtype(), [&](auto type) {
    statistics_of_parts<decltype(type)>(statistics, logits, targets, first_class, parts,
                                        ignore_index);
  });
}

void combine_statistics(Out combined, const Tensor& statistics) {
  statistics.dtype() == DType::f64 ? combine_all<double>(combined, statistics)
                                   : combine_all<float>(combined, statistics);
}

void vocabulary_loss(Out loss, const Tensor& combined, const Targets& targets, double loss_scale,
                     int ignore_index) {
  const CategoryScope scope(Category::workspace);
  const Shape rows{targets.rows()};
  const bool by_rows = loss.shape() == rows;
  const Tensor losses = by_rows ? loss : Tensor::empty(rows, combined.dtype());
  const TargetsOfRows of_rows(targets, ignore_index);
  combined.dtype() == DType::f64 ? losses_of<double>(losses, combined, of_rows)
                                 : losses_of<float>(losses, combined, of_rows);
  if (!by_rows) tessera::sum(loss, losses);
  tessera::scale(loss, loss, loss_scale);
}

void vocabulary_gradient(Out dlogits, const Tensor& logits, const Tensor& combined,
                         const Targets& targets, std::int64_t first_class, double loss_scale,
                         int ignore_index, const Tensor& factors) {
  const TargetsOfRows of_rows(targets, ignore_index, first_class);
  check_targets("vocabulary_gradient", targets, kMostClasses, ignore_index);
  visit_floating(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    if (std::is_same_v<T, float> && dlogits.dtype() == DType::bf16) {
      return gradients<bfloat16, T>(dlogits, logits, combined, of_rows, loss_scale, factors);
    }
    gradients<T, T>(dlogits, logits, combined, of_rows, loss_scale, factors);
  });
}

}  // namespace tessera::cpu
