// GroupCall: a collective in the log of a dry run, and the ranks that make it together.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct GroupCall {
  /// The number of its transfer among the log's entries.
  int entry = 0;
  /// A text that all ranks of the group have in common, and no other group has. The calls of a group come in one
  /// order on all its ranks.
  std::string group;
  /// The group's first and last ranks, as the world numbers them.
  int first = 0;
  int last = 0;
  /// "all_gather h.0".
  std::string name;
};

/// In the order of entries. A dry run's communicators write to the context's state of this type.
using GroupCalls = std::vector<GroupCall>;

}  // namespace tessera
