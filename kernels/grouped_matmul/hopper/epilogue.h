// The epilogue of the products on Hopper: three warps that store a tile while the consumers sum the next one
// (sm_90a).
//
// A lane takes a chunk of 16 bytes from the staging: eight columns of a row, or four in f32. A warp stores
// whole rows of the tile, 512 bytes each. With gate and up a lane takes a chunk of both, and stores
// silu(gate) * up as well. For their gradients it reads both from memory. A bias of GELU's input has the sums of
// its gradient's rows as gradient. A lane adds up its eight columns over the rows of a tile, and the lanes with
// the same columns add theirs in shared memory, in a fixed order.
#pragma once

#include "kernels/cuda/sigmoid.h"
#include "kernels/gelu/device.h"
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
    float sums[kWidth] = {};  // of the lane's columns, with lines
#pragma unroll 1
    for (int piece = 0; piece < Staging::kPieces; ++piece) {
#pragma unroll
      for (int group = 0; group < gpu::kConsumers; ++group) {
        if (Staging::kRows * group >= work.rows) continue;
        staging.wait(group, places[group]++);
        store(work, group, piece * Staging::kPieceColumns, sums);
        const bool last = Staging::kRows * (group + 1) >= min(kTileRows, work.rows);
        if (kResult == Result::gelu_gradient && last && problem.lines != nullptr) {
          store_line(work, sums, staging.room(group));
        }
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
  static constexpr bool kReads =
      kResult == Result::gated_gradient || kResult == Result::gelu_gradient;
  static constexpr int kBatch = kReads ? 4 : 1;

  __device__ static int thread_of_epilogue() {
    return static_cast<int>(threadIdx.x) - 32;
  }
  __device__ std::int64_t columns() const {
    return kResultsOf<kResult> * problem.N;
  }

  /// The rows of consumer `group`, columns from `first` on.
  template <typename Work>
  __device__ void store(const Work& work, int group, int first, float (&sums)[kWidth]) const {
    const int thread = thread_of_epilogue();
    const int chunk = thread % kChunks, column = first + chunk * kWidth;
    if (column >= work.columns) return;
    const int rows = min(Staging::kRows, work.rows - Staging::kRows * group);
    for (int row = thread / kChunks; row < rows; row += kBatch * kStep) {
      const std::int64_t row_of_tile = Staging::kRows * group + row;
      auto* const to = work.c + row_of_tile * columns() + column;
      const void* const from = staging.chunk(group, row, chunk);
      if constexpr (kResult == Result::gated_gradient) {
        store_gradients(to, work.section, group, chunk, row, rows);
      } else if constexpr (kResult == Result::gelu_gradient) {
        store_gelu_gradients(to, group, chunk, row, rows, sums);
      } else if constexpr (kResult == Result::gelu) {
        store_gelu(to, work.activated + row_of_tile * work.section + column,
                   *static_cast<const uint4*>(from));
      } else if constexpr (kResult == Result::gated) {
        const auto* const up = staging.chunk(group, row, kChunks + chunk);
        store_gated(to, to + work.section, work.activated + row_of_tile * work.section + column,
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

  /// The gradient of GELU's input in kBatch rows of the lane, and its sums as it is stored. Loads and bits as above.
  __device__ void store_gelu_gradients(S* to, int group, int chunk, int row, int rows,
                                       float (&sums)[kWidth]) const {
    const S* const pre = problem.pre + (to - problem.c);
    uint4 inputs[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (row + i * kStep >= rows) break;
      inputs[i] = gpu::Vector<S>::load_raw(pre + i * kStep * columns());
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (row + i * kStep >= rows) break;
      const void* const from = staging.chunk(group, row + i * kStep, chunk);
      auto d = gpu::Vector<S>::unpack(*static_cast<const uint4*>(from));
      const auto x = gpu::Vector<S>::unpack(inputs[i]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) d.values[j] *= gpu::TanhGelu::both(x.values[j]).derivative;
      const uint4 raw = d.pack();
      *reinterpret_cast<uint4*>(to + i * kStep * columns()) = raw;
      const auto rounded = gpu::Vector<S>::unpack(raw);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[j] += rounded.values[j];
    }
  }

  /// Adds up the sums of the lanes that have the same columns, in a room that all lanes have read.
  template <typename Work>
  __device__ void store_line(const Work& work, const float (&sums)[kWidth], void* room) const {
    constexpr int kFours = kWidth / 4, kEpilogueBarrier = 2;
    // Both fours of a chunk are in different banks.
    constexpr int kPitch = gpu::kEpilogueThreads + 4;
    auto* const fours = static_cast<float4*>(room);  // [kFours][kStep][kChunks], kPitch apart
    const int thread = thread_of_epilogue();
    gpu::named_sync(kEpilogueBarrier, gpu::kEpilogueThreads);
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      fours[i * kPitch + thread] =
          make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
    }
    gpu::named_sync(kEpilogueBarrier, gpu::kEpilogueThreads);
    const int column = 4 * thread;
    if (column >= min(Staging::kPieceColumns, work.columns)) return;
    const float4* const from = fours + thread % kFours * kPitch + thread / kFours;
    float4 total = from[0];
#pragma unroll
    for (int i = 1; i < kStep; ++i) {
      const float4 next = from[i * kChunks];
      total = make_float4(total.x + next.x, total.y + next.y, total.z + next.z, total.w + next.w);
    }
    const std::int64_t line = (problem.P - work.rows) / kRowsOfLine;
    float* const to = problem.lines + line * problem.N + (problem.N - work.columns) + column;
    *reinterpret_cast<float4*>(to) = total;
  }

  /// GELU takes its input as it is stored.
  __device__ static void store_gelu(S* to, S* to_activated, const uint4& raw) {
    *reinterpret_cast<uint4*>(to) = raw;
    auto x = gpu::Vector<S>::unpack(raw);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x.values[i] = gpu::TanhGelu::value(x.values[i]);
    x.store(to_activated);
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
