// Cross-entropy of divided classes, s bytes each logit.
//
//   statistics   reads N V' s
//   gradient     reads N V' s, writes N V' s
//
// One block per part of a row, or per row of gradients. A thread of the statistics takes elements
// t, t + blockDim, ... at every address: a part's address depends on the number of ranks,
// and its bits must not. Loads of neighbouring threads are neighbours, so they still fill whole lines.
#include <algorithm>
#include <type_traits>

#include "kernels/cross_entropy/row.h"
#include "kernels/cross_entropy/rows.h"
#include "kernels/cuda/fault.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/step_value.h"
#include "kernels/scale/op.h"
#include "kernels/vocabulary_cross_entropy/op.h"
#include "kernels/vocabulary_cross_entropy/row.h"
#include "runtime/category.h"

namespace tessera::cuda {
namespace {

constexpr int kMostThreads = 512;

using Row = RowStatistics<float>;

/// The targets, and where faults among them go.
struct CheckedTargets {
  gpu::TargetsOfRows targets;
  FaultSlot fault;

  /// Those of a row, for the columns of part `part`. Reports a negative class.
  __device__ gpu::RowTargets of_row(std::int64_t n, std::int64_t part = 0) const {
    gpu::RowTargets row = targets[n];
    row.first_class += part * row.columns;
    for (int k = static_cast<int>(threadIdx.x); k < row.count; k += static_cast<int>(blockDim.x)) {
      if (row.classes[k] < 0 && row.classes[k] != row.ignore_index) gpu::report(fault, n);
    }
    return row;
  }
};

/// The maximum and the sum over a row, the same at any address.
template <typename T>
__device__ gpu::OnlineSum<T> sum_in_order(const T* row, std::int64_t count) {
  constexpr int kAtATime = 4;  // loads under way
  gpu::OnlineSum<T> sum;
  std::int64_t i = threadIdx.x;
  for (; i + (kAtATime - 1) * blockDim.x < count; i += kAtATime * blockDim.x) {
    float x[kAtATime];
#pragma unroll
    for (int k = 0; k < kAtATime; ++k) x[k] = gpu::load(row[i + k * blockDim.x]);
    sum.add(x);
  }
  for (; i < count; i += blockDim.x) {
    const float x[1] = {gpu::load(row[i])};
    sum.add(x);
  }
  return sum.over_block();
}

/// Row blockIdx.x of part blockIdx.y.
template <typename T>
__global__ void __launch_bounds__(kMostThreads)
    statistics_kernel(Row* statistics, const T* logits, std::int64_t classes,
                      CheckedTargets checked) {
  gpu::SharedMemory memory;
  const std::int64_t n = blockIdx.x, part = blockIdx.y, parts = gridDim.y;
  const gpu::RowTargets targets = checked.of_row(n, part);
  float* const at_targets = memory.take<float>(static_cast<std::size_t>(targets.count));
  const T* const row = logits + (n * parts + part) * classes;
  targets.keep_logits(at_targets, row);
  const auto sum = sum_in_order(row, classes);
  if (threadIdx.x != 0) return;
  statistics[part * gridDim.x + n] = {sum.maximum, sum.sum, targets.logit(at_targets)};
}

/// to[i] combines from[p] and from[p + 1], with `rows` statistics in each part.
__global__ void __launch_bounds__(gpu::kThreads)
    combine_kernel(Row* to, const Row* from, std::int64_t rows, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t pair = i / rows, n = i % rows;
  const Row a = from[2 * pair * rows + n], b = from[(2 * pair + 1) * rows + n];
  const float largest = fmaxf(a.maximum, b.maximum);
  const auto rescaled = [&](const Row& x) {  // both maxima may be minus infinity
    return x.maximum == largest ? x.sum : x.sum * expf(x.maximum - largest);
  };
  to[i] = {largest, rescaled(a) + rescaled(b), a.target + b.target};
}

__global__ void __launch_bounds__(gpu::kThreads)
    losses_kernel(float* losses, const Row* combined, std::int64_t rows,
                  gpu::TargetsOfRows targets) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= rows) return;
  const Row row = combined[n];
  losses[n] = targets[n].ignored() ? 0.0f : (row.maximum - row.target) + logf(row.sum);
}

template <typename G, typename T>
__global__ void __launch_bounds__(kMostThreads)
    gradient_kernel(G* dlogits, const T* logits, const Row* combined, std::int64_t classes,
                    bool vectorized, StepValue<float> scale, const float* factors,
                    CheckedTargets checked) {
  gpu::SharedMemory memory;
  const std::int64_t n = blockIdx.x;
  const gpu::RowTargets targets = checked.of_row(n);
  float* const at_targets = memory.take<float>(static_cast<std::size_t>(targets.count));
  const T* const row = logits + n * classes;
  G* const to = dlogits + n * classes;
  if (targets.ignored()) return gpu::zero_row(to, gpu::RowParts<G>(to, classes));
  const gpu::RowParts<T> parts(row, classes, vectorized);
  targets.keep_logits(at_targets, row);
  __syncthreads();  // before any thread overwrites them
  const float factor = factors == nullptr ? 1.0f : factors[n];
  const gpu::GradientOfRow<T> gradient(combined[n].maximum, combined[n].sum,
                                       gpu::current(scale) * factor);
  parts.for_each_single([&](std::int64_t i) { gpu::store(to[i], gradient(gpu::load(row[i]))); });
  if constexpr (std::is_same_v<G, T>) {
    parts.for_each_vector(
        [&](unsigned j) { return gpu::Vector<T>::load_raw(row + parts.first_of(j)); },
        [&](unsigned j, const uint4& raw) {
          const std::int64_t i = parts.first_of(j);
          gradient(gpu::Vector<T>::unpack(raw)).store(to + i);
        });
  }
  targets.correct(to, at_targets, gradient);
}

Row* rows_of(const Tensor& statistics) {
  return reinterpret_cast<Row*>(statistics.data<float>());
}

CheckedTargets targets_of(const Targets& targets, std::int64_t first_class, std::int64_t columns,
                          int ignore_index) {
  const FaultSlot fault = fault_slot(
      current_stream(),
      "vocabulary_cross_entropy: the target at position {} is neither a class nor ignore_index");
  return {gpu::targets_of_rows(targets, ignore_index, first_class, columns), fault};
}

/// At least a warp, at most one thread per element. A function of the part alone.
dim3 threads_for(std::int64_t classes) {
  return dim3(static_cast<unsigned>(std::min<std::int64_t>(kMostThreads, round_up(classes, 32))));
}

void combine_pairs(Out combined, const Tensor& statistics) {
  const std::int64_t rows = statistics.size(1), count = combined.numel() / 3;
  gpu::launch(combine_kernel, dim3(gpu::blocks_for(count, gpu::kThreads, INT32_MAX)),
              dim3(gpu::kThreads), 0, gpu::stream(), rows_of(combined), rows_of(statistics), rows,
              count);
}

}  // namespace

void vocabulary_statistics(Out statistics, const Tensor& logits, const Targets& targets,
                           std::int64_t first_class, std::int64_t parts, int ignore_index) {
  if (logits.numel() == 0) return;
  const std::int64_t classes = logits.size(1) / parts;
  const dim3 blocks(static_cast<unsigned>(logits.size(0)), static_cast<unsigned>(parts));
  gpu::visit(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch(statistics_kernel<T>, blocks, threads_for(classes), gpu::bytes_of_targets(targets),
                gpu::stream(), rows_of(statistics), logits.data<T>(), classes,
                targets_of(targets, first_class, classes, ignore_index));
  });
}

void combine_statistics(Out combined, const Tensor& statistics) {
  if (combined.numel() == 0) return;
  const std::int64_t parts = statistics.size(0);
  if (parts == 1) return combined.copy_from(statistics.reshape(combined.shape()));
  if (parts == 2) return combine_pairs(combined, statistics);
  const CategoryScope scope(Category::workspace);
  const Tensor half = Tensor::empty({parts / 2, statistics.size(1), 3}, DType::f32);
  combine_pairs(half, statistics);
  cuda::combine_statistics(combined, half);
}

void vocabulary_loss(Out loss, const Tensor& combined, const Targets& targets, double loss_scale,
                     int ignore_index) {
  const CategoryScope scope(Category::workspace);
  const std::int64_t rows = targets.rows();
  const bool by_rows = loss.numel() != 1;
  const Tensor losses = by_rows ? loss : Tensor::empty({rows}, DType::f32);
  if (rows > 0) {
    gpu::launch(losses_kernel, dim3(gpu::blocks_for(rows, gpu::kThreads, INT32_MAX)),
                dim3(gpu::kThreads), 0, gpu::stream(), losses.data<float>(), rows_of(combined),
                rows, gpu::targets_of_rows(targets, ignore_index, 0, 0));
  }
  if (by_rows) return tessera::scale(loss, loss, loss_scale);
  scaled_sum(loss, losses, loss_factor(loss_scale));
}

void vocabulary_gradient(Out dlogits, const Tensor& logits, const Tensor& combined,
                         const Targets& targets, std::int64_t first_class, double loss_scale,
                         int ignore_index, const Tensor& factors) {
  if (logits.numel() == 0) return;
  const std::int64_t classes = logits.size(1);
  const auto apart = reinterpret_cast<std::uintptr_t>(dlogits.raw()) -
                     reinterpret_cast<std::uintptr_t>(logits.raw());
  const auto run = [&](auto* kernel, auto* to, auto* from, bool vectorized) {
    gpu::launch(kernel, dim3(static_cast<unsigned>(logits.size(0))), threads_for(classes),
                gpu::bytes_of_targets(targets), gpu::stream(), to, from, rows_of(combined), classes,
                vectorized, loss_factor(loss_scale),
                factors.defined() ? factors.data<float>() : nullptr,
                targets_of(targets, first_class, classes, ignore_index));
  };
  if (dlogits.dtype() != logits.dtype()) {
    return run(gradient_kernel<bfloat16, float>, dlogits.data<bfloat16>(), logits.data<float>(),
               false);
  }
  gpu::visit(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    run(gradient_kernel<T, T>, dlogits.data<T>(), logits.data<T>(), apart % 16 == 0);
  });
}

}  // namespace tessera::cuda
