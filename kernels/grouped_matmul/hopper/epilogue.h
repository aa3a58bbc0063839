// The epilogue of the products on Hopper: three warps that store a tile while the consumers sum the next one
// (sm_90a).
//
// A lane takes a chunk of 16 bytes from the staging: eight columns of a row, or four in f32. A warp stores
// whole rows of the tile, 512 bytes each. With gate and up a lane takes a chunk of both, and stores
// silu(gate) * up as well. For their gradients it reads both from memory.
#pragma once

#include "kernels/cuda/sigmoid.h"
#include "kernels/grouped_matmul/hopper/staging.h"
#include "kernels/grouped_matmul/hopper/work.h"

namespace tessera::cuda::groups {

template <Result kResult, typename Problem, typename Staging>
struct Epilogue {
  const Problem& problem;
  const Staging& staging;
  unsigned places[gpu::kConsumers] = {};  // the pieces of each consumer so far

  template <typename Work>
  __device__ void visit(const Work& work) {
    if (is_left_alone(problem, work)) return;
#pragma unroll 1
    for (int piece = 0; piece < Staging::kPieces; ++piece) {
#pragma unroll
      for (int group = 0; group < gpu::kConsumers; ++group) {
        if (Staging::kRows * group >= work.rows) continue;
        staging.wait(group, places[group]++);
        store(work, group, piece * Staging::kPieceColumns);
        staging.release(group);
      }
    }
  }

 private:
  using S = typename Staging::Element;
  static constexpr int kWidth = Staging::kWidth;
  /// Lanes next to each other have chunks next to each other.
  static constexpr int kChunks = Staging::kPieceColumns / kSectionsOf<kResult> / kWidth;
  static_assert(gpu::kEpilogueThreads % kChunks == 0);
  /// From one row of a lane to the next, and the rows that it loads from memory together.
  static constexpr int kStep = gpu::kEpilogueThreads / kChunks;
  static constexpr int kBatch = kResult == Result::gated_gradient ? 4 : 1;

  __device__ std::int64_t columns() const {
    return kResultsOf<kResult> * problem.N;
  }

  /// The rows of consumer `group`, columns from `first` on.
  template <typename Work>
  __device__ void store(const Work& work, int group, int first) const {
    const int thread = static_cast<int>(threadIdx.x) - 32;
    const int chunk = thread % kChunks, column = first + chunk * kWidth;
    if (column >= work.columns) return;
    const int rows = min(Staging::kRows, work.rows - Staging::kRows * group);
    for (int row = thread / kChunks; row < rows; row += kBatch * kStep) {
      const std::int64_t row_of_tile = Staging::kRows * group + row;
      auto* const to = work.c + row_of_tile * columns() + column;
      const void* const from = staging.chunk(group, row, chunk);
      if constexpr (kResult == Result::gated_gradient) {
        store_gradients(to, work.section, group, chunk, row, rows);
      } else if constexpr (kResult == Result::gated) {
        const auto* const up = staging.chunk(group, row, kChunks + chunk);
        store_gated(to, to + work.section, work.gated + row_of_tile * work.section + column,
                    *static_cast<const uint4*>(from), *static_cast<const uint4*>(up));
      } else if constexpr (sizeof(S) == 2) {
        *reinterpret_cast<uint4*>(to) = *static_cast<const uint4*>(from);
      } else {
        store_sums(to, *static_cast<const float4*>(from));
      }
    }
  }

  /// The gradients of gate and up in kBatch rows of the lane, from `row` on. Their loads are in flight
  /// together. The gradient of silu(gate) * up is read as it would be stored, so that the bits are those of
  /// a kernel of its own.
  __device__ void store_gradients(S* to, int section, int group, int chunk, int row,
                                  int rows) const {
    const S* const gate_up = problem.gate_up + (to - problem.c);
    uint4 gates[kBatch], ups[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (row + i * kStep >= rows) break;
      gates[i] = gpu::Vector<S>::load_raw(gate_up + i * kStep * columns());
      ups[i] = gpu::Vector<S>::load_raw(gate_up + i * kStep * columns() + section);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (row + i * kStep >= rows) break;
      const void* const from = staging.chunk(group, row + i * kStep, chunk);
      const auto d = gpu::Vector<S>::unpack(*static_cast<const uint4*>(from));
      auto gate = gpu::Vector<S>::unpack(gates[i]), up = gpu::Vector<S>::unpack(ups[i]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        gpu::differentiate_swiglu(gate.values[j], up.values[j], d.values[j]);
      }
      gate.store(to + i * kStep * columns());
      up.store(to + i * kStep * columns() + section);
    }
  }

  /// SwiGLU takes gate and up as they are stored, so that its bits are those of a kernel of its own.
  __device__ static void store_gated(S* to_gate, S* to_up, S* to_gated, const uint4& gate,
                                     const uint4& up) {
    *reinterpret_cast<uint4*>(to_gate) = gate;
    *reinterpret_cast<uint4*>(to_up) = up;
    const auto g = gpu::Vector<S>::unpack(gate), u = gpu::Vector<S>::unpack(up);
    gpu::Vector<S> result;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) result.values[i] = gpu::swiglu(g.values[i], u.values[i]);
    result.store(to_gated);
  }

  template <typename U>
  struct alignas(4 * sizeof(U)) Four {
    U values[4];
  };
  /// Stores four sums, or adds them to the stored ones.
  template <typename U>
  __device__ void store_sums(U* to, const float4& sums) const {
    auto& stored = *reinterpret_cast<Four<U>*>(to);
    const float values[4] = {sums.x, sums.y, sums.z, sums.w};
    const Four<U> old = problem.accumulate ? stored : Four<U>{};
    Four<U> results;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      gpu::store(results.values[i],
                 problem.accumulate ? gpu::load(old.values[i]) + values[i] : values[i]);
    }
    stored = results;
  }
};

}  // namespace tessera::cuda::groups
