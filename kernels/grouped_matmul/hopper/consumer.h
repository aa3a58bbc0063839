// A consumer of the products on Hopper: it sums 64 rows of each tile on the tensor cores (sm_90a).
#pragma once

#include "kernels/grouped_matmul/hopper/staging.h"
#include "kernels/grouped_matmul/hopper/tiles.h"
#include "kernels/grouped_matmul/hopper/work.h"

namespace tessera::cuda::groups {

template <Direction kDirection, int kColumns, Result kResult, typename Problem, typename Ring,
          typename Staging>
struct Consumer {
  static constexpr bool kOfWeights = kDirection == Direction::weights;
  const Problem& problem;
  const Ring& ring;
  const Staging& staging;
  unsigned tile = 0, place = 0;  // in the ring, and in the staging
  gpu::ConsumerRows rows;

  /// Not a member: registers of a whole tile are not kept from one to the next.
  using Sums = float[kColumns / 8][4];

  /// f(i, j) for the places of sums.
  template <typename F>
  __device__ static void for_each_sum(F f) {
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) f(i, j);
    }
  }

  /// Waits for a step's tiles, and hides the rows of other experts among the depths.
  template <typename Work>
  __device__ auto wait(const Work& work, int depth) const {
    const auto tiles = ring.wait(tile);
    if (kOfWeights && work.depth - depth < kStepDepth) {
      gpu::clear_rows(work.depth - depth, tiles.left(), tiles.right());
    }
    return tiles;
  }

  /// c's bias, for both of the lane's rows of each fragment.
  template <typename Work>
  __device__ void begin_with_bias(Sums& sum, const Work& work) const {
    const int first = static_cast<int>(threadIdx.x % 4) * 2;
    using T = std::remove_cvref_t<decltype(*problem.bias)>;
    const T* const bias = problem.bias + (problem.N - work.columns) + first;
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) {
      const bool inside = 8 * i < work.columns;
      const float2 two =
          inside ? gpu::unpack<T>(*reinterpret_cast<const unsigned*>(bias + 8 * i)) : float2{};
      sum[i][0] = sum[i][2] = two.x;
      sum[i][1] = sum[i][3] = two.y;
    }
  }

  /// One group of products is in flight while the next one's tiles are waited for.
  template <typename Work>
  __device__ void add_up(Sums& sum, const Work& work) {
    constexpr bool kBegun = kResult == Result::gelu;
    if constexpr (kBegun) begin_with_bias(sum, work);
    for (int depth = 0; depth < work.depth; depth += kStepDepth, ++tile) {
      wait(work, depth).start_products(sum, rows.group, kBegun || depth > 0);
      if (depth == 0) continue;
      gpu::wait_products<1>();
      ring.release(tile - 1);
    }
    gpu::wait_products<0>(sum);
    ring.release(tile - 1);
  }
  /// The tensor cores keep about 14 bits of a sum of 8-bit numbers (runtime/emulation/device/narrow_sum.h). So each
  /// step of 128 depths has a sum of its own, which is added in f32.
  template <typename Work>
  __device__ void add_up_steps(Sums& sum, const Work& work) {
    const float inverse_a = *problem.inverse_a, inverse_b = *problem.inverse_b;
    for_each_sum([&](int i, int j) { sum[i][j] = 0.0f; });
    for (int depth = 0; depth < work.depth; depth += kStepDepth, ++tile) {
      Sums step;
      wait(work, depth).start_products(step, rows.group, false);
      gpu::wait_products<0>(step);
      ring.release(tile);
      for_each_sum([&](int i, int j) { sum[i][j] += step[i][j]; });
    }
    for_each_sum([&](int i, int j) { sum[i][j] *= inverse_a; });
    for_each_sum([&](int i, int j) { sum[i][j] *= inverse_b; });
  }
  /// A consumer with all of its rows behind the expert's last.
  template <typename Work>
  __device__ void pass_by(const Work& work) {
    for (int depth = 0; depth < work.depth; depth += kStepDepth, ++tile) {
      wait(work, depth);
      ring.release(tile);
    }
  }

  template <typename Work>
  __device__ void visit(const Work& work) {
    if (rows.first() >= work.rows) return pass_by(work);
    if (is_left_alone(problem, work)) return;
    Sums sum;
    if constexpr (std::is_same_v<typename Ring::Element, E4m3Pair>) {
      add_up_steps(sum, work);
    } else if (work.depth > 0) {
      add_up(sum, work);
    } else {
      for_each_sum([&](int i, int j) { sum[i][j] = 0.0f; });
    }
    staging.put(rows.group, place, sum);
  }
};

}  // namespace tessera::cuda::groups
