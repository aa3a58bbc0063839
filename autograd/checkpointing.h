// The choice of the blocks that compute their activations again in backward.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "autograd/unit.h"

namespace tessera {

/// Blocks first, first + every, first + 2 * every, ... are recomputed; none if `every` is 0.
struct CheckpointingPolicy {
  std::int64_t first = 0;
  std::int64_t every = 0;

  /// The texts that parse_checkpointing reads, for messages.
  static constexpr std::string_view kForms =
      "none, full, 'every K' (blocks 0, K, 2 K, ...) or 'from I' (block I and later)";

  bool recomputes(std::int64_t block) const {
    return every > 0 && block >= first && (block - first) % every == 0;
  }
  bool operator==(const CheckpointingPolicy&) const = default;
};

/// "none", "full", "every 2" (K >= 1) or "from 6" (I >= 0); no value for any other text.
std::optional<CheckpointingPolicy> parse_checkpointing(std::string_view text);

/// The text that parse_checkpointing reads to the same policy.
std::string to_string(const CheckpointingPolicy& policy);

/// Switches recomputation of every unit on or off. Units are in forward order: the embedding, then
/// block 0, 1, ..., then the head, unless the first unit is at both ends and so is the head too.
/// The embedding and the head run through Unit::run_once and are never recomputed. Raises Error if
/// the policy is 'from I' and there is no block I.
void set_checkpointing(const Units& units, const CheckpointingPolicy& policy);

}  // namespace tessera
