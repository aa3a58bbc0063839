// The kernels of attention, as the host calls them. Each takes f32, bf16 and f16 unless it says
// otherwise, and at least one query, key and batch element.
#pragma once

#include "kernels/attention/op.h"

namespace tessera::cuda::attention {

struct ForwardCall {
  const Heads& o;
  Out logsumexp;
  const Heads &q, &k, &v;
  float scale;
};

struct BackwardCall {
  const Heads &dq, &dk, &dv, &d_o, &q, &k, &v, &o;
  const Tensor& logsumexp;
  float scale;
};

/// Does every row of every head begin at a multiple of 16 bytes?
bool has_aligned_rows(const Heads& x);

/// Plain multiply-adds in f32, for heads of up to 256 channels and rows at any address.
inline constexpr std::int64_t kMostChannels = 256;
void forward_general(const ForwardCall& call);
void backward_general(const BackwardCall& call, const Tensor& statistics);

/// Tensor cores: bf16 and f16, heads of 64 or 128, rows at multiples of 16 bytes, scale > 0.
void forward_mma(const ForwardCall& call);
void backward_mma(const BackwardCall& call, const Tensor& statistics);

/// cuDNN's kernels, in builds that have them (kHasCudnn): bf16 and f16, heads of a multiple of 8
/// channels and at most 128, rows at multiples of 16 bytes, more than one query.
void forward_cudnn(const ForwardCall& call);
void backward_cudnn(const BackwardCall& call);

/// The statistics of every query (QueryStatistics) that both backward passes start from.
Tensor query_statistics(const BackwardCall& call);

}  // namespace tessera::cuda::attention
