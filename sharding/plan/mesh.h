// Mesh: the ranks of a job on a grid with named axes.
//
// Ranks are numbered along the last axis first. A set of axes cuts the ranks into groups: the ranks
// of one group differ only in their coordinates along these axes. The strategies use two axes:
//
//                        shard 0   shard 1   shard 2   shard 3
//           replica 0    rank 0    rank 1    rank 2    rank 3
//           replica 1    rank 4    rank 5    rank 6    rank 7
//
// Along {"shard"} the groups are {0, 1, 2, 3} and {4, 5, 6, 7}; along {"replica"} they are {0, 4},
// {1, 5}, {2, 6}, {3, 7}; along both axes all ranks are one group. The axes that a run may have are
// pipeline, replica, shard, context, expert and tensor, in this order: those that send most are
// last. A group along the last axes has neighbouring ranks. So it is a machine if ranks are numbered
// machine by machine. Sums in such groups, then across them, follow the tree of sums over all ranks
// (kernels/tree_reduce/op.h).
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

/// Names of axes, in the order in which the mesh has them.
using Axes = std::vector<std::string>;

struct Mesh {
  std::vector<Axis> axes;

  int world_size() const;
  bool has(const std::string& axis) const;
  /// Ranks per group along `along`. Raises Error if the mesh lacks one of these axes.
  int size_along(const Axes& along) const;
  /// The position of `rank` in its group along `along`, counted from 0 in the order of ranks.
  int position_along(int rank, const Axes& along) const;
  /// The coordinate of `rank` along one axis; 0 if the mesh lacks it.
  int place(int rank, const std::string& axis) const {
    return has(axis) ? position_along(rank, {axis}) : 0;
  }
  /// The number of the group along `along` that `rank` is in, counted from 0.
  int group_along(int rank, const Axes& along) const;

  bool operator==(const Mesh&) const = default;
};

/// "replica 2 x shard 4".
std::string to_string(const Mesh& mesh);

}  // namespace tessera
