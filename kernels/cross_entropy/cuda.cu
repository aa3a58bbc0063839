// Cross-entropy of rows of logits, s bytes each element.
//
//   forward     reads N V s
//   backward    reads N V s, writes N V s
//   both        reads N V s, writes N V s: a row stays in shared memory in between
//
// One block per row, or per share of a row. Thread t takes vectors t, t + blockDim, ... of 16 bytes each (row.h):
//
//   row n   |t0|t1|t2| ... |t511|t0|t1| ...       block n, up to 512 threads
//            \_ maximum and sum of every thread, online; then of the block, then of the cluster _/
//
// A block's shared memory keeps 99 KiB: 50,496 logits of 16 bits, with two blocks on a multiprocessor of sm_90. There
// a cluster of two or four blocks shares a longer row:
//
//   128,256 logits   |  block 0: 32,064  |  block 1: 32,064  |  block 2: 32,064  |  block 3: 32,064  |
//
// The rest of a row that is longer still, or has one block, is read again, while the second-level cache has some of
// it. The thread that read a logit overwrites it with its gradient. Other threads read only the targets' logits,
// before the first barrier of the block and the cluster. A block writes the gradients of its share's targets behind
// its own last barrier.
#include <algorithm>

#include "kernels/cross_entropy/op.h"
#include "kernels/cross_entropy/row.h"
#include "kernels/cross_entropy/rows.h"
#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/fault.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/step_value.h"

namespace tessera::cuda {
namespace {

/// Two blocks fill a multiprocessor, with registers for four loads a thread.
constexpr int kMostThreads = 512;
/// 99 KiB, which every device from sm_80 on has, less the static shared memory of the reductions.
constexpr std::int64_t kMostKept = 99 * 1024 - 384;
/// Shares of a row begin at multiples of so many columns, as rows of linear_cross_entropy do.
constexpr std::int64_t kColumnsTogether = 64;

/// Neighbouring blocks, a cluster, share a row. Each has `columns` of it, the last one the rest.
struct Shares {
  unsigned blocks;
  std::int64_t columns;

  __device__ std::int64_t row() const { return blockIdx.x / blocks; }
  /// The share's first column, and how many it has of `classes`.
  __device__ std::int64_t first() const { return blockIdx.x % blocks * columns; }
  __device__ std::int64_t count(std::int64_t classes) const {
    return min(columns, classes - first());
  }
};

/// The targets, and where faults among them go.
struct CheckedTargets {
  gpu::TargetsOfRows targets;
  std::int64_t first;  // the position of row 0
  FaultSlot fault;

  /// Those of a row. Reports one that is not a class.
  __device__ gpu::RowTargets of_row(std::int64_t n) const {
    const gpu::RowTargets row = targets[n];
    for (int k = static_cast<int>(threadIdx.x); k < row.count; k += static_cast<int>(blockDim.x)) {
      const std::int32_t target = row.classes[k];
      const bool known = 0 <= target && target < targets.columns;
      if (!known && target != row.ignore_index) gpu::report(fault, first + n);
    }
    return row;
  }
  __device__ bool ignores(const gpu::RowTargets& row) const {
    const std::int32_t target = row.classes[0];
    return row.ignored() || target < 0 || target >= targets.columns;
  }
};

template <typename T>
__global__ void __launch_bounds__(kMostThreads)
    forward_kernel(float* losses, float* logsumexp, const T* logits, std::int64_t stride,
                   Shares shares, CheckedTargets checked) {
  gpu::SharedMemory memory;
  const std::int64_t n = shares.row(), first = shares.first();
  const gpu::RowTargets targets = checked.of_row(n);
  float* const at_targets = memory.take<float>(static_cast<std::size_t>(targets.count));
  const T* const row = logits + n * stride;
  targets.keep_logits(at_targets, row);
  const gpu::RowParts<T> parts(row + first, shares.count(targets.columns));
  const auto sum = gpu::sum_of_row(row + first, parts, [](unsigned, const uint4&) {});
  if (threadIdx.x != 0 || first != 0) return;
  if (logsumexp) logsumexp[n] = sum.maximum + sum.log_of_sum();
  // Two parts: adding the maximum first would swallow the digits of a small loss.
  losses[n] = checked.ignores(targets)
                  ? 0.0f
                  : (sum.maximum - targets.logit(at_targets)) + sum.log_of_sum();
}

template <typename T>
__global__ void __launch_bounds__(kMostThreads)
    backward_kernel(T* dlogits, const float* dloss, const T* logits, const float* logsumexp,
                    bool vectorized, CheckedTargets checked) {
  gpu::SharedMemory memory;
  const std::int64_t n = blockIdx.x;
  const gpu::RowTargets targets = checked.of_row(n);
  float* const at_targets = memory.take<float>(static_cast<std::size_t>(targets.count));
  const T* const row = logits + n * targets.columns;
  T* const to = dlogits + n * targets.columns;
  const gpu::RowParts<T> parts(row, targets.columns, vectorized);
  if (checked.ignores(targets)) return gpu::zero_row(to, parts);
  targets.keep_logits(at_targets, row);
  __syncthreads();  // before any thread overwrites them
  const gpu::GradientOfRow<T> gradient(logsumexp[n], 1.0f, dloss[n]);
  parts.for_each_single([&](std::int64_t i) { gpu::store(to[i], gradient(gpu::load(row[i]))); });
  parts.for_each_vector(
      [&](unsigned j) { return gpu::Vector<T>::load_raw(row + parts.first_of(j)); },
      [&](unsigned j, const uint4& raw) {
        const std::int64_t i = parts.first_of(j);
        gradient(gpu::Vector<T>::unpack(raw)).store(to + i);
      });
  targets.correct(to, at_targets, gradient);
}

/// `kept_vectors` of a share stay in shared memory between the passes. Null factors are 1.
template <typename T>
__global__ void __launch_bounds__(kMostThreads, 2)
    loss_and_gradient_kernel(float* losses, T* logits, std::int64_t stride, StepValue<float> scale,
                             const float* factors, unsigned kept_vectors, Shares shares,
                             CheckedTargets checked) {
  using Vector = gpu::Vector<T>;
  gpu::SharedMemory memory;
  uint4* const kept = memory.take<uint4>(kept_vectors);
  const std::int64_t n = shares.row(), first = shares.first();
  const gpu::RowTargets targets = checked.of_row(n);
  float* const at_targets = memory.take<float>(static_cast<std::size_t>(targets.count));
  T* const row = logits + n * stride;
  T* const share = row + first;
  const gpu::RowTargets in_share = targets.in_columns(first, shares.count(targets.columns));
  const gpu::RowParts<T> parts(share, in_share.columns);
  if (checked.ignores(targets)) {
    if (threadIdx.x == 0 && first == 0) losses[n] = 0.0f;
    return gpu::zero_row(share, parts);
  }
  targets.keep_logits(at_targets, row);  // before any thread of any share overwrites them
  const auto sum = gpu::sum_of_row(share, parts, [&](unsigned j, const uint4& raw) {
    if (j < kept_vectors) kept[j] = raw;
  });
  if (threadIdx.x == 0 && first == 0) {
    losses[n] = (sum.maximum - targets.logit(at_targets)) + sum.log_of_sum();
  }

  const float factor = factors == nullptr ? 1.0f : factors[n];
  const gpu::GradientOfRow<T> gradient(sum.maximum, sum.sum, gpu::current(scale) * factor);
  parts.for_each_single(
      [&](std::int64_t i) { gpu::store(share[i], gradient(gpu::load(share[i]))); });
  parts.for_each_vector(
      [&](unsigned j) {
        return j < kept_vectors ? kept[j] : Vector::load_raw(share + parts.first_of(j));
      },
      [&](unsigned j, const uint4& raw) {
        const std::int64_t i = parts.first_of(j);
        gradient(Vector::unpack(raw)).store(share + i);
      });
  in_share.correct(share, at_targets, gradient);
}

/// One block: losses are one number per token, very few next to the logits.
__global__ void __launch_bounds__(kMostThreads)
    scaled_sum_kernel(float* result, const float* losses, std::int64_t count,
                      StepValue<float> scale) {
  float sum = 0.0f;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += losses[i];
  sum = gpu::block_reduce<gpu::Sum>(sum);
  if (threadIdx.x == 0) *result = gpu::current(scale) * sum;
}

/// At least a warp, at most one thread per vector.
template <typename T>
dim3 threads_for(std::int64_t classes) {
  const std::int64_t vectors = (classes + gpu::Vector<T>::kSize - 1) / gpu::Vector<T>::kSize;
  return dim3(
      static_cast<unsigned>(std::min<std::int64_t>(kMostThreads, (vectors + 31) / 32 * 32)));
}

/// The fewest blocks whose shared memory keeps a row, at most four; one where the GPU has no clusters. The bits of
/// sums depend on it, so a loss alone has the same shares as one with gradients.
template <typename T>
Shares shares_of(std::int64_t classes) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  Shares shares{1, classes};
  while (shares.columns * kSize > kMostKept && shares.blocks < gpu::kMostBlocksOfRow &&
         gpu::has_hopper()) {
    shares.blocks *= 2;
    shares.columns = round_up(ceil_div(classes, shares.blocks), kColumnsTogether);
  }
  return shares;
}

/// The blocks of so many rows.
gpu::Grid grid_of(std::int64_t rows, const Shares& shares) {
  return {dim3(static_cast<unsigned>(rows) * shares.blocks), shares.blocks};
}

CheckedTargets targets_of(const Targets& targets, std::int64_t classes, std::int64_t first,
                          int ignore_index) {
  const FaultSlot fault =
      fault_slot(current_stream(),
                 "cross_entropy: the target at position {} is neither a class nor ignore_index");
  return {gpu::targets_of_rows(targets, ignore_index, 0, classes), first, fault};
}

template <typename T>
void forward(Out losses, float* logsumexp, const LogitRows& rows) {
  const Shares shares = shares_of<T>(rows.classes);
  gpu::launch(forward_kernel<T>, grid_of(rows.targets.rows(), shares),
              threads_for<T>(shares.columns), gpu::bytes_of_targets(rows.targets), gpu::stream(),
              losses.data<float>(), logsumexp, rows.logits.data<T>(), rows.logits.size(1), shares,
              targets_of(rows.targets, rows.classes, rows.first, rows.ignore_index));
}

}  // namespace

void cross_entropy_forward(Out loss, Out logsumexp, const Tensor& logits, const Targets& targets,
                           int ignore_index) {
  if (targets.rows() == 0) return;
  gpu::visit(logits.dtype(), [&](auto type) {
    forward<decltype(type)>(loss, logsumexp.data<float>(),
                            {logits, logits.size(1), targets, 0, ignore_index});
  });
}

void cross_entropy_backward(Out dlogits, const Tensor& dloss, const Tensor& logits,
                            const Tensor& logsumexp, const Targets& targets, int ignore_index) {
  if (logits.numel() == 0) return;
  const std::int64_t classes = logits.size(1);
  const auto apart = reinterpret_cast<std::uintptr_t>(dlogits.raw()) -
                     reinterpret_cast<std::uintptr_t>(logits.raw());
  gpu::visit(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch(backward_kernel<T>, dim3(static_cast<unsigned>(logits.size(0))),
                threads_for<T>(classes), gpu::bytes_of_targets(targets), gpu::stream(),
                dlogits.data<T>(), dloss.data<float>(), logits.data<T>(), logsumexp.data<float>(),
                apart % 16 == 0, targets_of(targets, classes, 0, ignore_index));
  });
}

void losses_of_rows(Out losses, const LogitRows& rows) {
  gpu::visit(rows.logits.dtype(),
             [&](auto type) { forward<decltype(type)>(losses, nullptr, rows); });
}

void losses_and_gradients_of_rows(Out losses, const LogitRows& rows, const StepValue<float>& scale,
                                  const Tensor& factors) {
  gpu::visit(rows.logits.dtype(), [&](auto type) {
    using T = decltype(type);
    const Shares shares = shares_of<T>(rows.classes);
    const std::int64_t vectors = shares.columns / gpu::Vector<T>::kSize;
    const std::size_t of_targets = gpu::bytes_of_targets(rows.targets);
    const auto most = (kMostKept - static_cast<std::int64_t>(of_targets)) / 16;
    const auto kept = static_cast<unsigned>(std::clamp<std::int64_t>(vectors, 1, most));
    gpu::launch(loss_and_gradient_kernel<T>, grid_of(rows.targets.rows(), shares),
                threads_for<T>(shares.columns), std::size_t{kept} * 16 + of_targets, gpu::stream(),
                losses.data<float>(), rows.logits.data<T>(), rows.logits.size(1), scale,
                factors.defined() ? factors.data<float>() : nullptr, kept, shares,
                targets_of(rows.targets, rows.classes, rows.first, rows.ignore_index));
  });
}

void scaled_sum(Out result, const Tensor& losses, const StepValue<float>& scale) {
  gpu::launch(scaled_sum_kernel, dim3(1), dim3(kMostThreads), 0, gpu::stream(),
              result.data<float>(), losses.data<float>(), losses.numel(), scale);
}

}  // namespace tessera::cuda
