// An elementwise operation on many pairs of tensors in one launch.
//
// A thread takes four neighbouring elements of a pair at a time, 16 bytes of f32 or 8 of a 16-bit
// type: see kernels/cuda/multi_tensor.h.
#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/multi_tensor.h"
#include "runtime/tensor.h"

namespace tessera::gpu {

template <typename To, typename From>
struct Pair {
  To* to;
  const From* from;
  std::int64_t count;

  __device__ bool has_quads() const { return are_quads(to, from); }
};

/// Operation{}(to, from) is called for each pair of elements as stored. It reads `to` only if
/// Operation::kReadsTarget.
template <typename Operation, typename To, typename From>
__global__ void __launch_bounds__(kThreads)
    pairs_kernel(const __grid_constant__ TensorList<Pair<To, From>> list) {
  const auto chunk = Chunk<Pair<To, From>>::of_block(list);
  To* const to = chunk.item.to;
  const From* const from = chunk.item.from;
  const auto four = [=](std::int64_t i) {
    Four<To> result;
    if constexpr (Operation::kReadsTarget) result = Four<To>::load(to + i);
    const auto operand = Four<From>::load(from + i);
#pragma unroll
    for (int j = 0; j < 4; ++j) Operation{}(result.values[j], operand.values[j]);
    result.store(to + i);
  };
  chunk.for_each(four, [=](std::int64_t i) { Operation{}(to[i], from[i]); });
}

/// Applies the operation to tos[i] and froms[i], for every i.
template <typename Operation, typename To, typename From>
void for_each_pair(std::span<const Tensor> tos, std::span<const Tensor> froms) {
  std::vector<Pair<To, From>> pairs;
  for (std::size_t i = 0; i < tos.size(); ++i) {
    pairs.push_back({tos[i].data<To>(), froms[i].data<From>(), tos[i].numel()});
  }
  launch_for_each_list<Pair<To, From>>(pairs, pairs_kernel<Operation, To, From>);
}

}  // namespace tessera::gpu
