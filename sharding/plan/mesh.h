// Mesh: the ranks as a grid of replicas x shards.
//
// Ranks of one row share the state of a model between them; ranks of one column hold the same part
// of it. Rows are contiguous, so that a row is a machine where ranks are numbered by machine, and
// so that sums over rows and then columns follow the tree of sums over all
// (kernels/tree_reduce/op.h).
//
//               shard 0   shard 1   shard 2   shard 3
//   replica 0   rank 0    rank 1    rank 2    rank 3
//   replica 1   rank 4    rank 5    rank 6    rank 7
//
// DDP is N x 1, ZeRO and FSDP are 1 x N, HSDP is what lies between.
#pragma once

namespace tessera {

struct Mesh {
  int replicas = 1;
  int shards = 1;

  int world_size() const { return replicas * shards; }
  int replica_of(int rank) const { return rank / shards; }
  int shard_of(int rank) const { return rank % shards; }
  bool operator==(const Mesh&) const = default;
};

}  // namespace tessera
