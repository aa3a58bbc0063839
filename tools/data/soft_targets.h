// Soft targets: the next token and a teacher's K most likely ones, as one distribution per token.
//
// Distillation mixes two losses of a token,
//
//   (1 - w) cross_entropy(next token) + w cross_entropy(teacher),
//
// and a cross-entropy is linear in its target. So the mix is the cross-entropy against
//
//   (1 - w) [v = next token] + w p(v),    p(v) = P(v) / (sum of P over the K ids) for these ids, else 0
//
// with the teacher's probabilities P. Its mass is 1, as kernels/cross_entropy/op.h needs it.
// Its gradient is that of w KL(p | student) too, because the entropy of p has none: the loss of torchtune's
// ForwardKLLoss, with p for the whole distribution.
//
// Division by the sum moves the tail's mass to the K tokens, so that a small K makes students too sure (Anshumann
// et al. 2025, who sample ids instead). The next token's share works against this. A bucket for the rest would
// have no such bias, but its loss needs the student's mass outside of the K, which is no sum over targets.
#pragma once

#include <cstdint>
#include <span>

#include "tools/data/teacher_file.h"

namespace tessera {

/// Targets of one token: 1 + K classes and their weights.
struct SoftTarget {
  std::span<std::int32_t> classes;
  std::span<float> weights;
};

/// The ids and log-probabilities are a record's, in falling order. Column 0 has the next token. An id of the
/// teacher that equals it adds its weight there. Empty columns are kIgnoreIndex with weight 0. A next token that
/// is kIgnoreIndex leaves all columns empty, and a record without ids gives the next token the weight 1.
/// `weight` is w, 0 to 1.
void write_soft_target(const SoftTarget& target, std::int32_t next_token, double weight,
                       std::span<const TokenId> ids, std::span<const float16> log_probabilities);

}  // namespace tessera
