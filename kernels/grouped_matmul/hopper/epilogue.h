// The epilogue of the products on Hopper: three warps that store a tile while the consumers sum the next one
// (sm_90a).
//
// A lane takes a chunk of 16 bytes from the staging: eight columns of a row, or four in f32. A warp stores
// whole rows of the tile, 512 bytes each. With gate and up a lane takes a chunk of both, and stores
// silu(gate) * up as well. For their gradients it reads both from memory.
//
// The gradient of a row's weight is a sum along the row. The lanes of a row add up the columns of a tile, in a
// fixed order. A following kernel adds the tiles (cuda.cu).
//
// A bias of GELU's input has the sums of its gradient's rows as gradient. A lane adds up its eight columns over the
// rows of a tile. The lanes with the same columns add theirs in shared memory, in a fixed order.
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
        const OwnRow own = find_row(work, group);  // on its way during the wait
        staging.wait(group, places[group]++);
        store(work, group, piece * Staging::kPieceColumns, own, sums);
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
  static constexpr int kBatch = kIsGradient<kResult> || kResult == Result::gelu_gradient ? 4 : 1;

  __device__ std::int64_t columns() const {
    return kResultsOf<kResult> * problem.N;
  }

  __device__ static int thread() {
    return static_cast<int>(threadIdx.x) - 32;
  }
  /// The first row of a lane, and its chunk in all of its rows.
  __device__ static int first_row() {
    return thread() / kChunks;
  }
  __device__ static int chunk_of_lane() {
    return thread() % kChunks;
  }
  template <typename Work>
  __device__ static int rows_of(const Work& work, int group) {
    return min(Staging::kRows, work.rows - Staging::kRows * group);
  }

  /// A lane shares its rows with their other lanes, and looks after one of them: it finds the weight for all, and
  /// stores the sum. In a batch the lanes' first quarter looks after the first row, the second after the next one.
  struct OwnRow {
    std::int32_t slot = -1;
    float weight = 1.0f;
  };
  static constexpr int kShare = kChunks / kBatch;
  template <typename Work>
  __device__ OwnRow find_row(const Work& work, int group) const {
    OwnRow own;
    if constexpr (kResult == Result::weighed_gradient) {
      static_assert(Staging::kRows <= kStep * kChunks && Staging::kPieces == 1);
      const int chunk = chunk_of_lane(), i = chunk % kShare * kBatch + chunk / kShare;
      const int row = first_row() + i * kStep;
      if (problem.weights == nullptr || row >= rows_of(work, group)) return own;
      own.slot = problem.slots[work.a.token + Staging::kRows * group + row];
      own.weight = gpu::load(problem.weights[own.slot]);
    }
    return own;
  }

  /// The rows of consumer `group`, columns from `first` on.
  template <typename Work>
  __device__ void store(const Work& work, int group, int first, const OwnRow& own,
                        float (&sums)[kWidth]) const {
    if constexpr (kResult == Result::weighed_gradient) return store_weighed(work, group, own);
    const int chunk = chunk_of_lane(), column = first + chunk * kWidth;
    if (column >= work.columns) return;
    const int rows = rows_of(work, group);
    for (int row = first_row(); row < rows; row += kBatch * kStep) {
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
      gate.store_at_once(to + i * kStep * columns());
      up.store_at_once(to + i * kStep * columns() + section);
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
      d.store_at_once(to + i * kStep * columns());
      const auto rounded = gpu::Vector<S>::unpack(d.pack());
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
    const int own = thread();
    gpu::named_sync(kEpilogueBarrier, gpu::kEpilogueThreads);
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      fours[i * kPitch + own] =
          make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
    }
    gpu::named_sync(kEpilogueBarrier, gpu::kEpilogueThreads);
    const int column = 4 * own;
    if (column >= min(Staging::kPieceColumns, work.columns)) return;
    const float4* const from = fours + own % kFours * kPitch + own / kFours;
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
    x.store_at_once(to_activated);
  }

  /// The same for weighed rows. All lanes run along, because those of a row add up its part of the weight's
  /// gradient. Lanes without a row have zeros, and store nothing.
  template <typename Work>
  __device__ void store_weighed(const Work& work, int group, const OwnRow& own) const {
    const int chunk = chunk_of_lane(), column = chunk * kWidth, rows = rows_of(work, group);
    const int end = column < work.columns ? rows : 0;
    S* const to = work.c + Staging::kRows * group * columns() + column;
    S* const gated = work.activated + std::int64_t{Staging::kRows * group} * work.section + column;
    const S* const gate_up = problem.gate_up + (to - problem.c);
    float sum = 0.0f;
#pragma unroll 1
    for (int batch = 0; batch * kBatch * kStep < rows; ++batch) {
      const auto row = [&](int i) { return first_row() + (batch * kBatch + i) * kStep; };
      const auto at = [&](int i) {
        return std::uint64_t{static_cast<unsigned>(row(i))} * static_cast<unsigned>(work.section);
      };
      uint4 gates[kBatch], ups[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const bool there = row(i) < end;
        gates[i] = there ? gpu::Vector<S>::load_raw(gate_up + 2 * at(i)) : uint4{};
        ups[i] = there ? gpu::Vector<S>::load_raw(gate_up + 2 * at(i) + work.section) : uint4{};
      }
      float parts[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const float weight = __shfl_sync(gpu::kFullWarp, own.weight, i * kShare + batch, kChunks);
        const void* const from = staging.chunk(group, row(i) % Staging::kRows, chunk);
        auto d = gpu::Vector<S>::unpack(*static_cast<const uint4*>(from));
        auto gate = gpu::Vector<S>::unpack(gates[i]), up = gpu::Vector<S>::unpack(ups[i]);
        parts[i] = 0.0f;
        gpu::differentiate_weighed_swiglu<S>(gate.values, up.values, d.values, weight, parts[i]);
        if (row(i) < end) {
          gate.store_at_once(to + 2 * at(i));
          up.store_at_once(to + 2 * at(i) + work.section);
          d.store_at_once(gated + at(i));
        }
      }
      const float part = sum_of_lane(parts);
      if (chunk % kShare == batch) sum = part;
    }
    if (own.slot < 0) return;
    const int tile = (work.section - work.columns) / Staging::kPieceColumns;
    problem.sums[tile * problem.P + own.slot] = sum;
  }

  /// From the parts of a batch's rows, the sum over a row's lanes for the lane's own row.
  __device__ static float sum_of_lane(float (&parts)[kBatch]) {
#pragma unroll
    for (int count = kBatch / 2, lanes = kChunks / 2; count > 0; count /= 2, lanes /= 2) {
      const bool second = chunk_of_lane() & lanes;
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const float kept = second ? parts[i + count] : parts[i];
        const float given = second ? parts[i] : parts[i + count];
        parts[i] = kept + __shfl_xor_sync(gpu::kFullWarp, given, lanes);
      }
    }
    return gpu::warp_reduce<gpu::Sum>(parts[0], kShare);
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
