// result[i] = tree over r of source r's element i, in the tree of op.h.
//
// Traffic: every source is read once and the result written once, nothing else. A thread owns one
// vector of 16 bytes of each source. It reads up to eight sources at a time, so that eight loads
// are in flight, and adds them as a binary counter counts: `partial[level]` is the sum of 2^level
// neighbouring sources that waits for its right-hand neighbour.
//
//   source     x0  x1  x2  x3  x4  x5        then, from the right:
//   level 0    x0  .   x2  .   x4  .
//   level 1        01  01  .   .   45                      45
//   level 2                03  03  03         03 + 45
//
// A launch takes up to 128 sources, as many pointers as its parameters hold. Runs of 128 sources
// that begin at a multiple of 128 are subtrees of the tree, so more sources take two passes: first
// each run into a tensor of partial sums, then the tree over these. The partial sums are f32 (or
// i64) as in registers, so the bits are those of one pass.
#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/tree_reduce/op.h"
#include "runtime/category.h"

namespace tessera::cuda {
namespace {

constexpr int kGroupLevels = 3;
constexpr int kGroup = 1 << kGroupLevels;  // sources that are read at a time
constexpr int kRunLevels = 7;
constexpr int kRun = 1 << kRunLevels;  // sources of one launch

struct Add {
  template <typename Sum>
  __device__ static Sum combine(Sum left, Sum right) {
    return left + right;
  }
};
struct Maximum {
  __device__ static float combine(float left, float right) {
    return left > right || left != left ? left : right;
  }
};

template <typename Sum, typename T>
__device__ Sum to_sum(T value) {
  if constexpr (sizeof(T) == 8) {
    return value;
  } else {
    return gpu::load(value);
  }
}
template <typename T, typename Sum>
__device__ T from_sum(Sum sum) {
  T value;
  if constexpr (sizeof(T) == 8) {
    value = sum;
  } else {
    gpu::store(value, sum);
  }
  return value;
}

/// The pointers travel as a parameter of the kernel.
template <typename T>
struct Sources {
  const T* data[kRun];
  int count;
};

/// The binary counter, for kWidth elements at once. Up to 2^(kLevels - 1) sources.
template <typename Sum, int kWidth, int kLevels, typename Combine>
struct Tree {
  Sum partial[kLevels][kWidth];
  Sum sum[kWidth];

  /// `sum` is source kGroup * group + r, the next one. All indices of `partial` are constants, so
  /// that it stays in registers.
  template <int r, int level = 0>
  __device__ void add(int group) {
    if constexpr (level < kLevels) {
      const int bit = level < kGroupLevels ? r >> level : group >> (level - kGroupLevels);
      if (!(bit & 1)) return keep(level);
      take(level);
      add<r, level + 1>(group);
    }
  }
  /// Leaves the tree over all `count` sources in `sum`.
  template <int level = 0>
  __device__ void finish(int count, bool begun = false) {
    if constexpr (level < kLevels) {
      if ((count >> level) & 1) {
        begun ? take(level) : fetch(level);
        begun = true;
      }
      finish<level + 1>(count, begun);
    }
  }

 private:
  __device__ void keep(int level) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) partial[level][j] = sum[j];
  }
  __device__ void fetch(int level) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum[j] = partial[level][j];
  }
  __device__ void take(int level) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum[j] = Combine::combine(partial[level][j], sum[j]);
  }
};

/// A thread's elements: those of [begin, begin + kWidth) that lie within [0, count). Addresses of
/// `begin` are multiples of 16 if `aligned`.
template <typename T>
struct Place {
  static constexpr int kWidth = 16 / sizeof(T);
  std::int64_t begin, count;
  bool aligned;

  __device__ bool has(int j) const { return begin + j >= 0 && begin + j < count; }
  __device__ bool is_vector() const { return aligned && has(0) && has(kWidth - 1); }

  __device__ void load(T (&values)[kWidth], const T* from) const {
    if (is_vector()) {
      const uint4 raw = *reinterpret_cast<const uint4*>(from + begin);
      memcpy(static_cast<void*>(values), &raw, 16);
      return;
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[j] = has(j) ? from[begin + j] : T{};
  }

  template <typename Result, typename Sum>
  __device__ void store(Result* to, const Sum (&sum)[kWidth]) const {
    Result values[kWidth];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[j] = from_sum<Result>(sum[j]);
    if (is_vector()) {
      constexpr std::size_t kBytes = kWidth * sizeof(Result);  // 8 where f32 becomes 16 bits
      using Raw = std::conditional_t<kBytes == 8, uint2, uint4>;
      constexpr int kVectors = kBytes / sizeof(Raw);  // two where 16 bits become f32
      Raw raw[kVectors];
      memcpy(raw, values, sizeof(values));
#pragma unroll
      for (int v = 0; v < kVectors; ++v) reinterpret_cast<Raw*>(to + begin)[v] = raw[v];
      return;
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (has(j)) to[begin + j] = values[j];
    }
  }
};

template <typename Sum, int kLevels, typename Combine, typename T, typename Result>
__global__ void __launch_bounds__(gpu::kThreads)
    tree_reduce_kernel(Result* result, Sources<T> sources, std::int64_t count, int shift,
                       bool aligned) {
  constexpr int kWidth = Place<T>::kWidth;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const Place<T> place{thread * kWidth - shift, count, aligned};
  Tree<Sum, kWidth, kLevels, Combine> tree;
  for (int first = 0; first < sources.count; first += kGroup) {
    T values[kGroup][kWidth];
#pragma unroll
    for (int r = 0; r < kGroup; ++r) {
      if (first + r < sources.count) place.load(values[r], sources.data[first + r]);
    }
    const auto add = [&]<int r>(std::integral_constant<int, r>) {
      if (first + r >= sources.count) return;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) tree.sum[j] = to_sum<Sum>(values[r][j]);
      tree.template add<r>(first / kGroup);
    };
    [&]<int... r>(std::integer_sequence<int, r...>) {
      (add(std::integral_constant<int, r>{}), ...);
    }
    (std::make_integer_sequence<int, kGroup>{});
  }
  tree.finish(sources.count);
  place.store(result, tree.sum);
}

int misalignment(const void* pointer) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(pointer) % 16);
}

/// Slices of one buffer that belong to different ranks often lie equally far from a multiple of 16
/// bytes. The first thread then takes the elements before it, and all others whole vectors.
template <typename T, typename Result>
bool is_aligned(const Result* result, const Sources<T>& sources, int shift) {
  if (misalignment(result - shift) != 0) return false;
  for (int r = 0; r < sources.count; ++r) {
    if (misalignment(sources.data[r] - shift) != 0) return false;
  }
  return true;
}

/// Up to kRun sources.
template <typename Sum, typename Combine, typename T, typename Result>
void reduce_run(Result* result, std::span<const Tensor> tensors) {
  Sources<T> sources{};
  for (const Tensor& tensor : tensors) sources.data[sources.count++] = tensor.data<T>();
  const std::int64_t count = tensors[0].numel();
  int shift = misalignment(sources.data[0]) / static_cast<int>(sizeof(T));
  const bool aligned = is_aligned(result, sources, shift);
  if (!aligned) shift = 0;
  const auto kernel = sources.count <= kGroup
                          ? tree_reduce_kernel<Sum, kGroupLevels + 1, Combine, T, Result>
                          : tree_reduce_kernel<Sum, kRunLevels + 1, Combine, T, Result>;
  const unsigned blocks =
      gpu::blocks_for(count + shift, gpu::kThreads * Place<T>::kWidth, INT32_MAX);
  gpu::launch(kernel, dim3(blocks), dim3(gpu::kThreads), 0, gpu::stream(), result, sources, count,
              shift, aligned);
}

template <typename Sum, typename Combine, typename T, typename Result>
void reduce(Result* result, std::span<const Tensor> sources) {
  if (sources[0].numel() == 0) return;
  if (sources.size() <= kRun) return reduce_run<Sum, Combine, T>(result, sources);
  const CategoryScope category(Category::workspace);
  std::vector<Tensor> partials;
  for (std::size_t begin = 0; begin < sources.size(); begin += kRun) {
    const auto run = sources.subspan(begin, std::min<std::size_t>(kRun, sources.size() - begin));
    // As far from a multiple of 16 bytes, in elements, as the sources.
    const std::int64_t shift = misalignment(run[0].raw()) / static_cast<int>(sizeof(T));
    const std::int64_t count = run[0].numel();
    const Tensor room = Tensor::empty({shift + count}, dtype_of<Sum>);
    partials.push_back(room.slice(shift, shift + count));
    reduce_run<Sum, Combine, T>(partials.back().data<Sum>(), run);
  }
  reduce<Sum, Combine, Sum>(result, std::span<const Tensor>(partials));
}

}  // namespace

void tree_reduce(Out result, std::span<const Tensor> sources, Reduction reduction) {
  if (reduction == Reduction::maximum) {
    return reduce<float, Maximum, float>(result.data<float>(), sources);
  }
  if (sources[0].dtype() == DType::i64) {
    return reduce<std::int64_t, Add, std::int64_t>(result.data<std::int64_t>(), sources);
  }
  gpu::visit(sources[0].dtype(), [&](auto type) {
    using T = decltype(type);
    if (result.dtype() == DType::f32) {
      reduce<float, Add, T>(result.data<float>(), sources);
    } else {
      reduce<float, Add, T>(result.data<T>(), sources);
    }
  });
}

}  // namespace tessera::cuda
