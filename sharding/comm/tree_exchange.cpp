#include "sharding/comm/tree_exchange.h"

#include <algorithm>
#include <bit>

#include "runtime/integer.h"

namespace tessera {
namespace {

/// Sources in the staging buffer begin at multiples of this.
constexpr std::int64_t kAlignment = 256;

std::int64_t bytes_of(std::int64_t count, DType dtype) {
  return count * static_cast<std::int64_t>(size_of(dtype));
}

/// The same elements of every rank's share of one tensor, counted from the share's beginning. A
/// share may be an element shorter than the longest and end within.
struct TreeSegment {
  std::size_t tensor;
  ElementRange range;
};
using Round = std::vector<TreeSegment>;

/// The sources and sums of one segment on this rank.
struct Pieces {
  const TreeSegment* segment = nullptr;
  std::vector<Tensors> inside;  // for each node: the sources of this node's ranks, by number
  Tensors sums;                 // for each node: their sum
  Tensors across;               // for each node: that node's sum of this rank's share
};

class Reducer {
 public:
  Reducer(const Call& call, const NodeGrid& grid, const Staging& staging)
      : call_(call), grid_(grid), halves_(staging.halves ? 2 : 1) {
    const std::int64_t half = staging.bytes / halves_;
    room_ =
        std::max(kAlignment, half / std::max<std::int64_t>(1, slots()) / kAlignment * kAlignment);
    cut_into_rounds();
    std::int64_t largest = 0;
    for (const Round& round : rounds_) largest = std::max(largest, used_bytes(round));
    half_bytes_ = largest;
    if (largest > 0) staging_ = staging.allocate(halves_ * largest);
  }

  void run(Transport& transport) {
    std::vector<Pieces> pieces[2];
    const std::size_t ahead = halves_ - 1;
    for (std::size_t started = 0, r = 0; r < rounds_.size(); ++r) {
      for (; started < std::min(rounds_.size(), r + 1 + ahead); ++started) {
        const std::size_t half = started % static_cast<std::size_t>(halves_);
        pieces[half] = pieces_of(rounds_[started], static_cast<std::int64_t>(half));
        transport.start(static_cast<int>(half), messages_inside(pieces[half]));
      }
      const std::size_t half = r % static_cast<std::size_t>(halves_);
      transport.finish(static_cast<int>(half));
      add_inside(pieces[half]);
      if (grid_.nodes() == 1) continue;
      transport.start(kAcross, messages_across(pieces[half]));
      transport.finish(kAcross);
      add_across(pieces[half]);
    }
  }

 private:
  static constexpr int kAcross = 2;

  const Tensor& source(std::size_t tensor) const { return call_.inputs_or_outputs()[tensor]; }

  /// Places in the staging buffer that a segment needs: for sources from this node's ranks, and
  /// with several nodes for the sums and for sources from other nodes.
  std::int64_t slots() const {
    const std::int64_t nodes = grid_.nodes();
    return (grid_.per_node - 1) * nodes + (nodes > 1 ? nodes + nodes - 1 : 0);
  }

  std::int64_t slot_bytes(const TreeSegment& segment) const {
    return round_up(bytes_of(segment.range.count(), source(segment.tensor).dtype()), kAlignment);
  }

  std::int64_t used_bytes(const Round& round) const {
    std::int64_t bytes = 0;
    for (const TreeSegment& segment : round) bytes += slots() * slot_bytes(segment);
    return bytes;
  }

  /// Every rank cuts alike.
  void cut_into_rounds() {
    std::int64_t used = room_;
    for (std::size_t i = 0; i < call_.outputs.size(); ++i) {
      const std::int64_t longest = ceil_div(source(i).numel(), grid_.size);
      for (std::int64_t begin = 0; begin < longest;) {
        if (room_ - used < kAlignment) {
          rounds_.emplace_back();
          used = 0;
        }
        const std::int64_t fits =
            (room_ - used) / kAlignment * kAlignment / bytes_of(1, source(i).dtype());
        const ElementRange range = {begin, std::min(longest, begin + fits)};
        rounds_.back().push_back({i, range});
        used += slot_bytes(rounds_.back().back());
        begin = range.end;
      }
    }
  }

  /// The segment within rank r's share of a tensor of as many elements as the source.
  Tensor piece(const Tensor& tensor, int r, const TreeSegment& segment) const {
    const Tensor share = share_of(tensor, r, grid_.size);
    return share.slice(std::min(segment.range.begin, share.numel()),
                       std::min(segment.range.end, share.numel()));
  }
  Tensor source_piece(int r, const TreeSegment& segment) const {
    return piece(source(segment.tensor), r, segment);
  }

  std::vector<Pieces> pieces_of(const Round& round, std::int64_t half) const {
    std::int64_t offset = half * half_bytes_;
    std::vector<Pieces> all;
    for (const TreeSegment& segment : round) {
      const auto place = [&](const Tensor& like) {
        const Tensor slot = Tensor::view(staging_.storage(), static_cast<std::size_t>(offset),
                                         like.shape(), like.dtype());
        offset += slot_bytes(segment);
        return slot;
      };
      Pieces& pieces = all.emplace_back();
      pieces.segment = &segment;
      const Tensor own = source_piece(grid_.rank, segment);
      for (int node = 0; node < grid_.nodes(); ++node) {
        // The contributions of this node's ranks to a share: that of `node`'s rank with this number.
        const Tensor mine = source_piece(grid_.rank_at(node, grid_.own_number()), segment);
        Tensors& sources = pieces.inside.emplace_back();
        for (int number = 0; number < grid_.per_node; ++number) {
          sources.push_back(number == grid_.own_number() ? mine : place(mine));
        }
        if (grid_.nodes() == 1) continue;
        pieces.sums.push_back(place(mine));
        const bool here = node == grid_.own_node();
        pieces.across.push_back(here ? pieces.sums.back() : place(own));
      }
    }
    return all;
  }

  Messages messages_inside(const std::vector<Pieces>& round) const {
    Messages messages;
    for (const Pieces& pieces : round) {
      for (int number = 0; number < grid_.per_node; ++number) {
        if (number == grid_.own_number()) continue;
        const int peer = grid_.rank_at(grid_.own_node(), number);
        for (int node = 0; node < grid_.nodes(); ++node) {
          const int owner = grid_.rank_at(node, number);
          messages.sent.push_back({peer, source_piece(owner, *pieces.segment)});
          messages.received.push_back({peer, pieces.inside[at(node)][at(number)]});
        }
      }
    }
    return messages;
  }

  Messages messages_across(const std::vector<Pieces>& round) const {
    Messages messages;
    for (const Pieces& pieces : round) {
      for (int node = 0; node < grid_.nodes(); ++node) {
        if (node == grid_.own_node()) continue;
        const int peer = grid_.rank_at(node, grid_.own_number());
        messages.sent.push_back({peer, pieces.sums[at(node)]});
        messages.received.push_back({peer, pieces.across[at(node)]});
      }
    }
    return messages;
  }

  void add_inside(const std::vector<Pieces>& round) const {
    for (const Pieces& pieces : round) {
      for (int node = 0; node < grid_.nodes(); ++node) {
        tree_reduce(grid_.nodes() == 1 ? result(*pieces.segment) : pieces.sums[at(node)],
                    pieces.inside[at(node)], call_.reduction);
      }
    }
  }

  void add_across(const std::vector<Pieces>& round) const {
    for (const Pieces& pieces : round) {
      tree_reduce(result(*pieces.segment), pieces.across, call_.reduction);
    }
  }

  Tensor result(const TreeSegment& segment) const {
    const Tensor& output = call_.outputs[segment.tensor];
    if (call_.collective == Collective::reduce_scatter) return elements(output, segment.range);
    return piece(output, grid_.rank, segment);
  }

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  const Call& call_;
  const NodeGrid& grid_;
  const int halves_;
  std::int64_t room_ = 0;  // bytes of a round's slots for one source
  std::vector<Round> rounds_;
  std::int64_t half_bytes_ = 0;
  Tensor staging_;
};

}  // namespace

NodeGrid NodeGrid::for_reduction(const Call& call, int rank, int size, int ranks_per_node) {
  const Tensors& sources = call.inputs_or_outputs();
  const bool narrow = std::any_of(sources.begin(), sources.end(), [](const Tensor& source) {
    return size_of(source.dtype()) == 2;
  });
  const bool same_tree = std::has_single_bit(static_cast<unsigned>(ranks_per_node));
  const bool stages = ranks_per_node > 1 && same_tree && !narrow;
  return {rank, size, stages ? ranks_per_node : size};
}

NodeGrid NodeGrid::for_gather(const Call& call, int rank, int size, int ranks_per_node) {
  // With unequal shares the two stages would send other bytes than one.
  const bool equal = std::all_of(call.outputs.begin(), call.outputs.end(),
                                 [&](const Tensor& output) { return output.numel() % size == 0; });
  return {rank, size, ranks_per_node > 1 && equal ? ranks_per_node : size};
}

void reduce_shares(const Call& call, const NodeGrid& grid, const Staging& staging,
                   Transport& transport) {
  Reducer(call, grid, staging).run(transport);
}

void gather_shares(const Call& call, const NodeGrid& grid, Transport& transport) {
  Messages across, inside;
  for (const Tensor& output : call.outputs) {
    const auto share = [&](int r) { return share_of(output, r, grid.size); };
    for (int node = 0; node < grid.nodes(); ++node) {
      const int own = grid.rank_at(node, grid.own_number());
      if (own != grid.rank) {
        across.sent.push_back({own, share(grid.rank)});
        across.received.push_back({own, share(own)});
      }
      for (int number = 0; number < grid.per_node; ++number) {
        if (number == grid.own_number()) continue;
        const int peer = grid.rank_at(grid.own_node(), number);
        inside.sent.push_back({peer, share(own)});
        inside.received.push_back({peer, share(grid.rank_at(node, number))});
      }
    }
  }
  if (grid.nodes() > 1) {
    transport.start(0, across);
    transport.finish(0);
  }
  transport.start(0, inside);
  transport.finish(0);
}

void send_sums(const Call& call, int rank, int ranks, Transport& transport) {
  const bool to_all = call.collective == Collective::all_reduce;
  Messages messages;
  for (const Tensor& x : call.outputs) {
    for (int r = 0; r < ranks; ++r) {
      if (r == rank) continue;
      if (to_all || r == call.root) messages.sent.push_back({r, share_of(x, rank, ranks)});
      if (to_all || rank == call.root) messages.received.push_back({r, share_of(x, r, ranks)});
    }
  }
  transport.start(0, messages);
  transport.finish(0);
}

void swap_parts(const Call& call, int rank, int ranks, Transport& transport) {
  Messages messages;
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    for (int r = 0; r < ranks; ++r) {
      if (r == rank) continue;
      messages.received.push_back({r, received_part(call, i, r, ranks)});
      messages.sent.push_back({r, sent_part(call, i, r, ranks)});
    }
    received_part(call, i, rank, ranks).copy_from(sent_part(call, i, rank, ranks));
  }
  transport.start(0, messages);
  transport.finish(0);
}

void shift_to_one(const Call& call, int rank, int ranks, Transport& transport) {
  const Tensor &received = call.outputs.front(), &sent = call.inputs.front();
  if (call.root == 0) return received.copy_from(sent);
  const int to = (rank + call.root) % ranks, from = (rank - call.root + ranks) % ranks;
  transport.start(0, {.sent = {{to, sent}}, .received = {{from, received}}});
  transport.finish(0);
}

}  // namespace tessera
