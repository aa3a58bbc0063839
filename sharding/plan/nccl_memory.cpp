#include "sharding/plan/nccl_memory.h"

#include <algorithm>
#include <vector>

#include "runtime/integer.h"

namespace tessera {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// The sizes of the groups along every set of the mesh's axes that has several ranks.
std::vector<int> group_sizes(const Mesh& mesh) {
  std::vector<int> sizes = {1};
  for (const Axis& axis : mesh.axes) {
    if (axis.size == 1) continue;
    const std::vector<int> without = sizes;
    for (const int size : without) sizes.push_back(size * axis.size);
  }
  sizes.erase(sizes.begin());
  return sizes;
}

}  // namespace

std::int64_t most_nccl_bytes(const Mesh& mesh, const NcclUse& use) {
  const int ranks = mesh.world_size();
  const int on_machine = use.ranks_per_machine > 0 ? use.ranks_per_machine : ranks;
  int neighbours = 0, sharp = 0;
  std::int64_t granules = ranks > 1 ? use.windows : 0;  // of windows
  for (const int size : group_sizes(mesh)) {
    neighbours += std::min(2, size - 1);
    sharp += std::min(size, on_machine);
    if (use.windows > 0) granules += ceil_div(std::min(size, on_machine), 2) + 1;
  }
  int connections = std::min(neighbours, ranks - 1);
  if (use.messages) connections += ranks - 1;
  const std::int64_t connection = (on_machine < ranks ? 20 : 12) * kMiB;
  return use.ctas * (connections * connection + sharp * 2 * kMiB) + granules * 2 * kMiB;
}

}  // namespace tessera
