// The host's functions that launch attention's kernels.
//
// Each takes f32, bf16 and f16 unless it says otherwise, and at least one query, key and batch
// element.
#pragma once

#include <array>

#include "kernels/attention/cuda/runs.h"

namespace tessera::cuda::attention {

struct ForwardCall {
  const Heads& o;
  Out logsumexp;
  const Heads &q, &k, &v;
  float scale;
  const RunTensors& runs;  // of first_key
};

struct BackwardCall {
  const Heads &dq, &dk, &dv, &d_o, &q, &k, &v, &o;
  const Tensor& logsumexp;
  float scale;
  const RunTensors& runs;
  const Rotary* rotary;  // the kernels for tensor cores rotate dq and dk back
  const Tensor& lines;   // where they write sums of rows (row_sums.h); undefined without
};

/// A line has the sums of so many tokens' rows. Heads of more channels have smaller blocks of rows, and no sums.
inline constexpr int kTokensOfLine = 64;
inline constexpr std::int64_t kMostSummedChannels = 128;

/// Does every row of every head begin at a multiple of 16 bytes?
bool has_aligned_rows(const Heads& x);

/// Raises Error if a kernel for heads of `head_size` channels needs more shared memory than a block of
/// the current device may use.
void check_shared_memory(const char* op, std::int64_t head_size, std::size_t bytes);

/// Workspace for the statistics of all queries (query_statistics.h), from one kernel of a backward
/// pass to the next.
Tensor memory_for_statistics(const Heads& q);
/// Computes them in a launch of its own, for rows at multiples of 16 bytes. At least one query.
void compute_statistics(const BackwardCall& call, const Tensor& statistics);

/// Plain multiply-adds in f32, for heads of up to 256 channels (128 where a block's shared memory is
/// 99 KiB) and rows at any address.
inline constexpr std::int64_t kMostChannels = 256;
void forward_general(const ForwardCall& call);
/// Both kernels of the backward pass.
void backward_general(const BackwardCall& call, const Tensor& statistics);

/// One query of more keys than a split has, which are split over thread blocks. Rows at multiples of 16
/// bytes, heads of up to 256 channels.
inline constexpr std::int64_t kKeysOfSplit = 128;
void forward_decoding(const ForwardCall& call);

/// Tensor cores: bf16 and f16, heads that suit (tensor_core_heads.h), rows at multiples of 16 bytes,
/// scale > 0. The backward kernels rotate back heads that fill a tile.
void forward_mma(const ForwardCall& call);
/// dQ, and the statistics of all queries. At least one query.
void query_gradient_mma(const BackwardCall& call, const Tensor& statistics);
/// dK and dV, from these statistics.
void key_value_gradient_mma(const BackwardCall& call, const Tensor& statistics);

/// Hopper's tensor cores: as above, with heads of 64 or 128, on GPUs of architecture 9.0 only.
inline constexpr std::array<std::int64_t, 2> kHopperHeads = {64, 128};
void forward_hopper(const ForwardCall& call);
/// dQ, dK and dV, from the statistics of all queries. At least one query.
void backward_hopper(const BackwardCall& call, const Tensor& statistics);

/// cuDNN's kernels, in builds that have them (kHasCudnn): bf16 and f16, heads of a multiple of 8
/// channels and at most 128, rows at multiples of 16 bytes, at least two queries, no first_key.
void forward_cudnn(const ForwardCall& call);
void backward_cudnn(const BackwardCall& call);

}  // namespace tessera::cuda::attention
