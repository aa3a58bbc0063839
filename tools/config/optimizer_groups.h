// optimizer.groups: groups of parameters with other settings of the optimizer.
//
//   groups:
//     - {match: tables, learning_rate_factor: 0.5}
//     - {match: "*.attn.*.weight, lm_head.weight", name: sgd, momentum: 0.9}
//     - {match: "transformer.h.0.*", frozen: true}
//
// A parameter is in the first group that matches it. `match` lists names, in which * stands for any text
// and ? for one character, and words:
//
//   vectors    norms and biases
//   tables     embeddings and the head
//   matrices   all others, and stacks of experts
//
// Where a group's rule is muon, its matrices have it, and its tables and vectors have adamw.
//
// The default groups follow: `vectors`, with muon `tables`, then `others`, which takes the rest. They have the section's keys. A
// listed group has those of the section in place of the keys that it does not give. Norms and biases
// decay only in a group that gives weight_decay (optim/decay_rule.h).
#pragma once

#include <string>
#include <vector>

#include "tools/config/keys.h"

namespace tessera {

/// A group with all its settings.
struct OptimizerGroup {
  /// As listed, or the name of a default group.
  std::string match;
  bool listed = true;
  /// The group's keys, and the section's in place of missing ones. learning_rate is multiplied by the
  /// group's factor. It has no groups.
  OptimizerConfig settings = {};
  /// Whether vectors decay too.
  bool gives_decay = false;
  bool frozen = false;
};

/// Those that are listed, then the default groups.
std::vector<OptimizerGroup> optimizer_groups(const OptimizerConfig& section);

/// The key optimizer.groups. As text it is a YAML list: [{match: tables, beta2: 0.99}].
Key optimizer_groups_key(std::vector<OptimizerGroupConfig>& groups);

}  // namespace tessera
