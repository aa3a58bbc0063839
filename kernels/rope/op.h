// Rotary position embedding (RoPE; Su et al. 2021, "RoFormer").
//
// A head's D channels are D / 2 pairs. At position p pair i is turned by the angle p f_i:
//
//   a' = a cos(p f_i) - b sin(p f_i)
//   b' = b cos(p f_i) + a sin(p f_i)           f_i = theta^(-2i / D)
//
// A query at p and a key at r, both turned, have a dot product that depends on p - r alone.
// Backward turns by the negative angle: a rotation's transpose is its inverse. In place, and
// nothing is saved but the table, which all layers share.
//
// Which channels make a pair is a convention of the weights. Queries and keys packed side by side
// are one Heads of heads + kv_heads heads: one call turns both.
#pragma once

#include <optional>
#include <vector>

#include "kernels/attention/op.h"
#include "kernels/op.h"

namespace tessera {

enum class RopePairs {
  half_split,  // (i, i + D / 2): GPT-NeoX; Hugging Face's Llama and Qwen, which permute the weights
  interleaved,  // (2i, 2i + 1): the paper; Meta's Llama, Llama 4
};

/// Llama 3.1's stretching of the context: waves longer than the original context turn `factor`
/// times slower, those that fit it often (high_frequency_factor times) as before, between them a
/// blend.
struct Llama3Scaling {
  double factor = 8.0;
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  double original_context = 8192.0;
};

/// f_i for i < head_size / 2.
std::vector<double> rope_frequencies(std::int64_t head_size, double theta,
                                     const std::optional<Llama3Scaling>& scaling = std::nullopt);

/// cos and sin of every position's angles, [positions, head_size / 2], f32 (f64 for f64).
struct RopeTable {
  Tensor cosine, sine;
  RopePairs pairs = RopePairs::half_split;
};

/// Angles and functions are computed in double and rounded once: in f32 an angle of 10^5 would be
/// off by 2^-8 before its cosine is taken. On the current context's device, charged to the current
/// category.
RopeTable rope_table(std::int64_t positions, const std::vector<double>& frequencies,
                     RopePairs pairs, DType dtype = DType::f32);

/// Where the tokens stand: token t of batch element b at first + t, or at first + each[b, t] (i32
/// [B, T], packed documents) if `each` is defined. A position outside the table raises Error; one
/// of `each` on the CPU at once, with nothing written, on CUDA when the stream is next
/// synchronized, the token left as it was.
struct RopePositions {
  std::int64_t first = 0;
  Tensor each;
};

void rope_forward(const Heads& x, const RopeTable& table, const RopePositions& positions = {});
void rope_backward(const Heads& dx, const RopeTable& table, const RopePositions& positions = {});

/// The backends compute both directions in one function.
enum class RopeDirection { forward, backward };
using RopeKernel = void(const Heads& x, const RopeTable& table, const RopePositions& positions,
                        RopeDirection direction);

namespace cpu {
RopeKernel rope;
}
namespace cuda {
RopeKernel rope;
}

}  // namespace tessera
