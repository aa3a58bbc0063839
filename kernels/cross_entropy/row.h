// Device code for one row of logits, which the threads of blocks share.
#pragma once

#include "kernels/cross_entropy/op.h"
#include "kernels/cuda/cluster.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/reduce.h"

namespace tessera::gpu {

/// The most blocks that share a row.
inline constexpr unsigned kMostBlocksOfRow = 4;

/// A row at any address, cut so that most of it is read 16 bytes at a time:
///
///   single ... | vector | vector | ... | vector | single ...
///              ^ first multiple of 16 bytes
///
/// A thread gets the same elements in every pass, so it may overwrite them.
template <typename T>
class RowParts {
 public:
  static constexpr int kSize = Vector<T>::kSize;

  /// Without `vectorized`, single elements only: for two tensors with rows of different alignment.
  __device__ RowParts(const T* row, std::int64_t count, bool vectorized = true) : count_(count) {
    const auto past_boundary =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
    const std::int64_t to_boundary = past_boundary == 0 ? 0 : kSize - past_boundary;
    head_ = vectorized && to_boundary < count ? to_boundary : count;
    vectors_ = static_cast<unsigned>((count - head_) / kSize);
  }

  /// The j-th vector's first element.
  __device__ std::int64_t first_of(unsigned j) const { return head_ + std::int64_t{j} * kSize; }

  /// f(i) for this thread's single elements.
  template <typename F>
  __device__ void for_each_single(F f) const {
    const std::int64_t singles = count_ - first_of(vectors_) + head_;
    for (std::int64_t i = threadIdx.x; i < singles; i += blockDim.x) {
      f(i < head_ ? i : i + first_of(vectors_) - head_);
    }
  }
  /// use(j, load(j)) for this thread's vectors, with four loads under way before the first use.
  template <typename Load, typename Use>
  __device__ void for_each_vector(Load load, Use use) const {
    constexpr unsigned kAtATime = 4;
    for (unsigned j = threadIdx.x; j < vectors_; j += kAtATime * blockDim.x) {
      uint4 raw[kAtATime] = {};
#pragma unroll
      for (unsigned k = 0; k < kAtATime; ++k) {
        if (j + k * blockDim.x < vectors_) raw[k] = load(j + k * blockDim.x);
      }
#pragma unroll
      for (unsigned k = 0; k < kAtATime; ++k) {
        if (j + k * blockDim.x < vectors_) use(j + k * blockDim.x, raw[k]);
      }
    }
  }

 private:
  std::int64_t count_, head_;
  unsigned vectors_;
};

/// e^x for x <= 0. For 16-bit logits the hardware's power of two, whose error (2^-21 where e^x is
/// worth mentioning) is far below theirs: two instructions. f32 logits get the exact function.
template <typename T>
__device__ float exponential(float x) {
  if constexpr (sizeof(T) == 2) {
    return fast_exp2(1.44269504f * x);  // log2(e)
  } else {
    return expf(x);
  }
}

/// The largest of some numbers and the sum of e^(x - largest), in one pass over them. A new largest
/// number scales the sum so far down (Milakov, Gimelshein 2018, "Online normalizer calculation for
/// softmax").
template <typename T>
struct OnlineSum {
  float maximum = -INFINITY;
  float sum = 0.0f;

  template <int kCount>
  __device__ void add(const float (&x)[kCount]) {
    float largest = x[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) largest = fmaxf(largest, x[i]);
    if (largest > maximum) {
      sum *= exponential<T>(maximum - largest);
      maximum = largest;
    }
    const float reference = finite(maximum);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += exponential<T>(x[i] - reference);
  }

  /// The sum over all the block's numbers, in every thread.
  __device__ OnlineSum over_block() const {
    const float largest = block_reduce<Maximum>(maximum);
    return {largest, block_reduce<Sum>(relative_to(largest))};
  }

  /// The sum over the cluster's blocks, each of which has a sum, in every thread. It is added in the order of ranks,
  /// so all blocks have the same bits. A block may then overwrite what others have read before.
  __device__ OnlineSum over_cluster() const {
    OnlineSum whole = *this;
    if constexpr (kHasHopper) {
      const unsigned blocks = blocks_of_cluster();
      if (blocks == 1) return whole;
      TESSERA_SHARED(float2, of_blocks, [kMostBlocksOfRow]);
      sync_cluster();  // all blocks have begun
      if (threadIdx.x < blocks) {
        in_block(&of_blocks[0], threadIdx.x)[block_in_cluster()] = float2{maximum, sum};
      }
      sync_cluster();
      for (unsigned i = 0; i < blocks; ++i) whole.maximum = fmaxf(whole.maximum, of_blocks[i].x);
      whole.sum = 0.0f;
      for (unsigned i = 0; i < blocks; ++i) {
        whole.sum += OnlineSum{of_blocks[i].x, of_blocks[i].y}.relative_to(whole.maximum);
      }
    }
    return whole;
  }

  __device__ float log_of_sum() const {
    return logf(sum);
  }

 private:
  /// The sum of e^(x - largest).
  __device__ float relative_to(float largest) const {
    return sum * exponential<T>(maximum - finite(largest));
  }
  /// 0 if all numbers were -infinity: then e^(x - 0) is 0, where x - x would be NaN.
  __device__ static float finite(float largest) {
    return largest == -INFINITY ? 0.0f : largest;
  }
};

/// The sum over a row of logits, in every thread. Each block of the cluster has a part of the row, and
/// `visit(j, raw)` sees the part's j-th vector.
template <typename T, typename Visit>
__device__ OnlineSum<T> sum_of_row(const T* part, const RowParts<T>& parts, Visit visit) {
  OnlineSum<T> sum;
  parts.for_each_single([&](std::int64_t i) {
    const float x[1] = {load(part[i])};
    sum.add(x);
  });
  parts.for_each_vector([&](unsigned j) { return Vector<T>::load_raw(part + parts.first_of(j)); },
                        [&](unsigned j, const uint4& raw) {
                          visit(j, raw);
                          sum.add(Vector<T>::unpack(raw).values);
                        });
  return sum.over_block().over_cluster();
}

/// gradient[v] = scale * (softmax(logits)[v] - the weight of v as a target), where the softmax of a
/// logit is e^(logit - maximum) / sum. The difference is formed before anything is rounded.
template <typename T>
class GradientOfRow {
 public:
  __device__ GradientOfRow(float maximum, float sum, float scale)
      : maximum_(maximum), inverse_(1.0f / sum), scale_(scale) {}

  /// Where there is no target.
  __device__ float operator()(float logit) const {
    return exponential<T>(logit - maximum_) * (inverse_ * scale_);
  }
  __device__ Vector<T> operator()(const Vector<T>& logits) const {
    Vector<T> gradient;
#pragma unroll
    for (int i = 0; i < Vector<T>::kSize; ++i) gradient.values[i] = (*this)(logits.values[i]);
    return gradient;
  }
  __device__ float at_target(float logit, float weight) const {
    return scale_ * (exponential<T>(logit - maximum_) * inverse_ - weight);
  }

 private:
  float maximum_, inverse_, scale_;
};

/// The targets of one row, some of them in its columns [0, columns). A thread takes targets threadIdx.x,
/// threadIdx.x + blockDim.x, ...
struct RowTargets {
  const std::int32_t* classes;
  const float* weights;  // null: 1
  int count, ignore_index;
  std::int64_t first_class, columns;

  __device__ bool ignored() const { return classes[0] == ignore_index; }
  __device__ float weight(int k) const { return weights == nullptr ? 1.0f : weights[k]; }
  /// The same targets for columns [first, first + count) of these.
  __device__ RowTargets in_columns(std::int64_t first, std::int64_t count) const {
    RowTargets part = *this;
    part.first_class += first;
    part.columns = count;
    return part;
  }
  /// f(k, column) of this thread's targets in the columns.
  template <typename F>
  __device__ void for_each(F f) const {
    for (int k = static_cast<int>(threadIdx.x); k < count; k += static_cast<int>(blockDim.x)) {
      const std::int64_t column = classes[k] - first_class;
      if (classes[k] != ignore_index && 0 <= column && column < columns) f(k, column);
    }
  }
  /// Copies the targets' logits to shared memory: zeros where the columns have none. The block's next barrier
  /// ends it.
  template <typename T>
  __device__ void keep_logits(float* kept, const T* row) const {
    for (int k = static_cast<int>(threadIdx.x); k < count; k += static_cast<int>(blockDim.x)) {
      kept[k] = 0.0f;
    }
    for_each([&](int k, std::int64_t column) { kept[k] = load(row[column]); });
  }
  /// Their weighted sum, for one thread.
  __device__ float logit(const float* kept) const {
    float sum = 0.0f;
    for (int k = 0; k < count; ++k) sum += weight(k) * kept[k];
    return sum;
  }
  /// Gives the targets their gradients, after those of all columns.
  template <typename G, typename T>
  __device__ void correct(G* gradients, const float* kept, const GradientOfRow<T>& gradient) const {
    __syncthreads();
    for_each([&](int k, std::int64_t column) {
      store(gradients[column], gradient.at_target(kept[k], weight(k)));
    });
  }
};

/// The targets of all rows, as kernels take them.
struct TargetsOfRows {
  const std::int32_t* classes;
  const float* weights;
  int each, ignore_index;
  std::int64_t first_class, columns;

  __device__ RowTargets operator[](std::int64_t n) const {
    return {classes + n * each,
            weights == nullptr ? nullptr : weights + n * each,
            each,
            ignore_index,
            first_class,
            columns};
  }
};

/// `targets` for columns [0, columns), which begin with class `first_class`.
inline TargetsOfRows targets_of_rows(const Targets& targets, int ignore_index,
                                     std::int64_t first_class, std::int64_t columns) {
  return {targets.classes.data<std::int32_t>(),
          targets.weights.defined() ? targets.weights.data<float>() : nullptr,
          static_cast<int>(targets.each()),
          ignore_index,
          first_class,
          columns};
}

/// Bytes of shared memory for the logits of a row's targets.
inline std::size_t bytes_of_targets(const Targets& targets) {
  return static_cast<std::size_t>(targets.each()) * sizeof(float);
}

template <typename T>
__device__ void zero_row(T* row, const RowParts<T>& parts) {
  parts.for_each_single([&](std::int64_t i) { store(row[i], 0.0f); });
  parts.for_each_vector(
      [](unsigned) { return uint4{}; },
      [&](unsigned j, const uint4&) { Vector<T>{}.store(row + parts.first_of(j)); });
}

}  // namespace tessera::gpu
