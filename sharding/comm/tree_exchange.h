// reduce_shares: every rank reduces its share of the elements, in the tree of kernels/tree_reduce.
//
// It is for communicators that send messages. If all N ranks are on one node, every rank sends each
// other rank that rank's share, and adds up its own share. With M nodes of K ranks each there are
// two stages, here with M = 2 and K = 2. Rank 1 owns share 1:
//
//            node 0                    node 1
//        rank 0   rank 1           rank 2   rank 3
//             ---->                     ---->            inside the node: shares 1 and 3
//               0 + 1                     2 + 3
//                  <------------------------             across the nodes: share 1
//               (0 + 1) + (2 + 3)
//
// The halves of the tree are the trees of contiguous halves of the ranks. So both ways add in the
// same order, and give the same bits, if K is a power of two. For any other K, and if nodes are not
// alike, all ranks count as one node. The same holds for 16-bit sources: their sum is rounded once,
// so sums inside a node would have to travel in f32.
//
// Bytes. With shares of s bytes a rank sends M (K - 1) s inside its node and (M - 1) s to other
// nodes. The total is (M K - 1) s = (N - 1) s with or without stages, as docs/communicators.md
// says. But without stages (N - K) s leave the node, K times as much for large M.
#pragma once

#include <functional>
#include <vector>

#include "sharding/comm/call.h"

namespace tessera {

/// A tensor on its way to a rank or from one.
struct Message {
  int peer;
  Tensor tensor;
};

struct Messages {
  std::vector<Message> sent;
  std::vector<Message> received;
};

/// Moves messages. Exchanges with different `slot` numbers may be under way at the same time; those
/// between two ranks arrive in the order in which they were started.
class Transport {
 public:
  static constexpr int kSlots = 3;
  virtual ~Transport() = default;
  virtual void start(int slot, const Messages& messages) = 0;
  /// Returns when the messages of the slot may be read and reused, on the current stream.
  virtual void finish(int slot) = 0;
};

/// The ranks of a group by nodes: rank r is number r % per_node on node r / per_node.
struct NodeGrid {
  int rank;
  int size;
  int per_node;

  int nodes() const { return size / per_node; }
  int own_node() const { return rank / per_node; }
  int own_number() const { return rank % per_node; }
  int rank_at(int node, int number) const { return node * per_node + number; }

  /// The grid for reductions of `call`: one node with all ranks unless two stages give the same
  /// bits and bytes.
  static NodeGrid for_reduction(const Call& call, int rank, int size, int ranks_per_node);
  /// The same for gathering equal shares.
  static NodeGrid for_gather(const Call& call, int rank, int size, int ranks_per_node);
};

/// How received sources are stored.
struct Staging {
  /// The largest size of the buffer; it is exceeded only if 256 bytes per message need more.
  std::int64_t bytes;
  /// Whether the buffer has two halves: one is filled while the other is added up.
  bool halves;
  /// Returns a buffer of at least this many bytes, of dtype u8.
  std::function<Tensor(std::int64_t bytes)> allocate;
};

/// Reduces this rank's share of every tensor of a call: to output i if the call is a
/// reduce_scatter, and otherwise to the rank's share of output i.
void reduce_shares(const Call& call, const NodeGrid& grid, const Staging& staging,
                   Transport& transport);

/// Every rank receives every other rank's share of the outputs: first across nodes, one share from
/// each node, then inside the node.
void gather_shares(const Call& call, const NodeGrid& grid, Transport& transport);

/// After reduce_shares every rank sends its sums to all ranks, or, of a reduce, to the root.
void send_sums(const Call& call, int rank, int ranks, Transport& transport);

/// An all_to_all: every rank receives its parts of the other ranks' inputs.
void swap_parts(const Call& call, int rank, int ranks, Transport& transport);

/// A shift: every rank sends its input to one rank.
void shift_to_one(const Call& call, int rank, int ranks, Transport& transport);

}  // namespace tessera
