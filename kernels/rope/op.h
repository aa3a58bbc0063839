// Rotary position embedding: pairs of channels rotated by their position's angle.
//
// (RoPE; Su et al. 2021, "RoFormer".) The D channels of a head are D / 2 pairs. At position p, pair
// i is rotated by the angle p f_i:
//
//   a' = a cos(p f_i) - b sin(p f_i)
//   b' = b cos(p f_i) + a sin(p f_i)           f_i = theta^(-2i / D)
//
// The dot product of a rotated query at p and a rotated key at r depends on p - r alone. Backward
// rotates by the negative angle: a rotation's transpose is its inverse. The rotation is in place.
// Only the table is saved, and all layers share it.
//
// Which channels form a pair is a convention of the weights. Queries and keys packed next to each
// other are one Heads of heads + kv_heads heads: one call rotates both.
#pragma once

#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/attention/op.h"
#include "kernels/op.h"
#include "runtime/enum_names.h"

namespace tessera {

enum class RopePairs {
  half_split,  // (i, i + D / 2): GPT-NeoX; Hugging Face's Llama and Qwen, which permute the weights
  interleaved,  // (2i, 2i + 1): the paper; Meta's Llama, Llama 4
};

/// All frequencies are divided by `factor` (position interpolation; Chen et al. 2023).
struct LinearScaling {
  double factor = 1.0;

  bool operator==(const LinearScaling&) const = default;
};

/// Llama 3.1's frequencies for longer contexts. A wave has n periods in the original context:
///
///   n < low_frequency_factor       f_i / factor
///   n >= high_frequency_factor     f_i
///   between                        a blend, linear in n
///
/// Equal factors make the blend a step.
struct Llama3Scaling {
  double factor = 8.0;
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  double original_context = 8192.0;

  bool operator==(const Llama3Scaling&) const = default;
};

/// YaRN (Peng et al. 2023). Pair i of D / 2 blends f_i and f_i / factor, linear in i:
///
///   c(n) = D ln(original_context / (2 pi n)) / (2 ln theta)     the pair with n periods
///   i <= c(fast_periods)     f_i
///   i >= c(slow_periods)     f_i / factor
///
/// Cosines and sines are multiplied by `amplitude`, so scores by its square.
struct YarnScaling {
  double factor = 1.0;
  double original_context = 4096.0;
  double fast_periods = 32.0;
  double slow_periods = 1.0;
  /// Whether c(fast_periods) is rounded down, and c(slow_periods) up.
  bool whole_pairs = true;
  /// None: 0.1 ln(factor) + 1, or 1 if the factor is at most 1.
  std::optional<double> amplitude;

  bool operator==(const YarnScaling&) const = default;
};

/// Dynamic NTK (Emozilla 2023, after bloc97). A sequence of L tokens, or of the original context C if
/// that is longer, has the frequencies of
///
///   theta (factor L / C - (factor - 1))^(D / (D - 2))
struct DynamicScaling {
  double factor = 1.0;
  double original_context = 4096.0;

  bool operator==(const DynamicScaling&) const = default;
};

/// LongRoPE (Ding et al. 2024). Pair i has f_i / short_factors[i] in sequences of at most the original
/// context, and f_i / long_factors[i] in longer ones. Cosines and sines are multiplied by `amplitude`
/// in both.
struct LongRopeScaling {
  std::vector<double> short_factors, long_factors;
  double original_context = 4096.0;
  double amplitude = 1.0;

  bool operator==(const LongRopeScaling&) const = default;
};

using RopeScaling = std::variant<std::monostate, LinearScaling, Llama3Scaling, YarnScaling,
                                 DynamicScaling, LongRopeScaling>;

/// The shortest length with the frequencies of a sequence of `length` tokens; 0 for scaling
/// that does not depend on the length.
std::int64_t deciding_length(const RopeScaling& scaling, std::int64_t length);

/// How angles are computed before they are rounded to the table's dtype.
enum class RopeAngles {
  /// In double: in f32 an angle of 10^5 has an error of 2^-8 before its cosine is taken.
  exact,
  /// Every step in f32, as in Transformers. For equal numbers at far positions.
  f32,
};

template <>
inline constexpr EnumNames<RopeAngles> kEnumNames<RopeAngles> = {"rope_angles", {"exact", "f32"}};

struct RopeFrequencies {
  /// f_i for i < head_size / 2.
  std::vector<double> of_pair;
  /// Cosines and sines are multiplied by it; 1 except for YaRN and LongRoPE.
  double amplitude = 1.0;
  RopeAngles angles = RopeAngles::exact;
};

/// Those of a sequence of `length` tokens. Raises Error unless head_size is even, and theta, factors
/// and contexts are positive.
RopeFrequencies rope_frequencies(std::int64_t head_size, double theta,
                                 const RopeScaling& scaling = {},
                                 RopeAngles angles = RopeAngles::exact, std::int64_t length = 0);

/// cos and sin of every position's angles, [positions, head_size / 2], f32 (f64 for f64).
struct RopeTable {
  Tensor cosine, sine;
  RopePairs pairs = RopePairs::half_split;
};

/// The table is on the current context's device, charged to the current category.
RopeTable rope_table(std::int64_t positions, const RopeFrequencies& frequencies, RopePairs pairs,
                     DType dtype = DType::f32);

/// The positions of tokens. Token t of batch element b has position first + t, or first + each[b,
/// t] if `each` (i32 [B, T]; packed documents) is defined.
///
/// A position outside the table raises Error. For a position of `each` the CPU raises it at once,
/// with nothing written; CUDA raises it when the stream is next synchronized, and leaves the token
/// as it was.
struct RopePositions {
  std::int64_t first = 0;
  Tensor each;
};

void rope_forward(const Heads& x, const RopeTable& table, const RopePositions& positions = {});
void rope_backward(const Heads& dx, const RopeTable& table, const RopePositions& positions = {});

/// The rotation of attention's queries and keys; none if the table is undefined.
struct Rotary {
  RopeTable table;
  RopePositions positions;

  bool defined() const { return table.cosine.defined(); }
};

/// Both rotated back; in one pass if they are packed next to each other.
void rope_backward(const Heads& dq, const Heads& dk, const Rotary& rotary);
/// Raises Error unless the rotation fits x. `op` is the operation that takes them.
void check_rotary(std::string_view op, const Heads& x, const Rotary& rotary);

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
