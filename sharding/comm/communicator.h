// Communicator: collectives among a group of ranks.
//
// Every rank of the group makes the same calls in the same order. These are the calls of rank r
// among N ranks, with tensors of N equal parts in rank order:
//
//   all_gather      part r of `whole` is filled; the other ranks' parts are added   (in place)
//   reduce_scatter  part = reduction over ranks of part r of their `whole`
//   all_reduce      x = reduction over ranks of x                                   (in place)
//   broadcast       x = root's x                                                    (in place)
//   reduce          root's x = reduction over ranks of x; others' x are undefined   (in place)
//   all_to_all      part s of `received` = part r of rank s's `sent`; all_to_all_parts: of any size
//   shift           received = `sent` of rank r - distance, counted around the ring of ranks
//   barrier         no rank continues before all have arrived
//
// A call is queued on `stream` and returns the event after it; it holds its tensors until then.
// Each call takes a list of tensors and moves them in one exchange. So FSDP gathers all parameters
// of a unit in place, without packing. All calls of one communicator must run in one order; for two
// streams that overlap, split off a second communicator.
//
// Sums follow the tree of kernels/tree_reduce/op.h. So results depend neither on timing nor on
// whether ranks are threads (threads/threads.h) or processes (mpi/mpi.h). Maxima are for f32 that
// are not negative, and NaN counts as the largest. In the profiler a call is a span on its stream,
// named by its collective and label.
//
// Agreement. Ranks compare a call before they make it: a mismatch raises Error on every rank,
// naming both sides. After two steps (`next_step`) ranks that are processes compare once per step
// instead; CheckCollectives::always asks for more.
//
// Failures. Every wait has a deadline, after which an Error names the missing ranks. `abort` makes
// the other ranks raise an Error with the reason instead of waiting. On a GPU a call does not wait
// for results, so the host calls `raise_if_aborted` after it has read them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/profiler.h"
#include "runtime/stream.h"
#include "sharding/comm/call.h"
#include "sharding/comm/call_history.h"
#include "sharding/comm/options.h"

namespace tessera {

/// A tensor that is cut into a part per rank, in rank order. Parts may be empty.
struct Parts {
  Tensor tensor;
  /// Elements of each part; their sum is the tensor's.
  std::vector<std::int64_t> counts;
};

class Communicator {
 public:
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(nodes_.size()); }
  /// K if every K consecutive ranks share a node and no others do; size() if all share one node. 1
  /// if nodes have different numbers of these ranks, or have them in another order.
  int ranks_per_node() const { return ranks_per_node_; }
  /// The number of a rank's node, the same for all ranks of the node.
  int node_of(int rank) const { return nodes_[static_cast<std::size_t>(rank)]; }

  Event all_gather(const Tensors& wholes, const Stream& stream, std::string label = {});
  Event reduce_scatter(const Tensors& parts, const Tensors& wholes, const Stream& stream,
                       std::string label = {}, Reduction reduction = Reduction::sum);
  Event all_reduce(const Tensors& tensors, const Stream& stream, std::string label = {},
                   Reduction reduction = Reduction::sum);
  Event broadcast(const Tensors& tensors, int root, const Stream& stream, std::string label = {});
  Event reduce(const Tensors& tensors, int root, const Stream& stream, std::string label = {},
               Reduction reduction = Reduction::sum);
  Event all_to_all(const Tensors& received, const Tensors& sent, const Stream& stream,
                   std::string label = {});
  /// The same with unequal parts. Every rank must know how much it receives from each other rank,
  /// so the ranks exchange the counts before.
  Event all_to_all_parts(const Parts& received, const Parts& sent, const Stream& stream,
                         std::string label = {});
  /// Every rank sends to one rank and receives from one, with `distance` from 0 to N - 1.
  Event shift(const Tensor& received, const Tensor& sent, int distance, const Stream& stream,
              std::string label = {});
  Event barrier(const Stream& stream);

  /// The communicator of those ranks that pass the same color, ordered by their rank here. Blocks.
  std::unique_ptr<Communicator> split(int color);
  /// The same for a caller that knows the color of every rank of this group.
  virtual std::unique_ptr<Communicator> split(const std::function<int(int rank)>& color_of);

  /// Zeros, in memory that suits this communicator's collectives best: that of the context, or windows of NCCL
  /// (nccl/nccl.h). It is charged to the current category. A collective: all ranks ask for equally much.
  virtual Tensor buffer(std::int64_t elements, DType dtype);

  /// Says that a training step's last collective has been queued. All ranks call it on the world.
  /// After the first kStepsCompared steps it compares the step's calls on `stream`, including those
  /// of every communicator that was split off.
  void next_step(const Stream& stream);
  static constexpr int kStepsCompared = 2;

  /// Makes every rank that waits, now or later, raise Error with `reason`.
  virtual void abort(const std::string& reason) = 0;
  /// The reason of an abort, if there was one. Any thread may ask.
  virtual std::optional<std::string> aborted() = 0;
  /// Raises Error with the reason after an abort. On a GPU an abort ends collectives without a CUDA
  /// error, and their results are undefined. So call this after the host has read results, before
  /// it uses them or writes them to a file.
  void raise_if_aborted();

  /// The ranks compare a call as they do before making it, but do not make it. Blocks. It is for a
  /// communicator that moves tensors by other means and leaves agreement to this one.
  virtual void agree(const Call& call) = 0;
  /// The same for the calls of a step.
  virtual void agree(const CallHistory& history) = 0;

  /// Bytes that other ranks have received from this one since the start, by collective: through
  /// this communicator and all that were split off from it.
  std::int64_t bytes_sent(Collective collective) const {
    return family_->bytes_sent[static_cast<int>(collective)].load();
  }
  std::int64_t bytes_sent() const;
  /// The same through this communicator alone, in all collectives.
  std::int64_t own_bytes_sent() const { return own_bytes_sent_->load(); }
  /// Milliseconds that calls took on their streams, waiting for other ranks included, since the
  /// start; of this communicator and all that were split off from it. On a GPU it is the GPU's
  /// time, and the host waits until all calls are done.
  double busy_ms() const { return family_->times.total_ms(kBusy); }

 protected:
  /// `nodes`: for each rank of the group the number of its node. `parent`: the communicator that
  /// this one is split off from, or null. `check` is used only without a parent.
  Communicator(int rank, std::vector<int> nodes, const Communicator* parent,
               CheckCollectives check);

  /// Carries out a call, on the thread of its stream, and returns the bytes this rank sent.
  virtual std::int64_t perform(const Call& call) = 0;
  virtual std::unique_ptr<Communicator> split_by(const Call& call) = 0;

 private:
  static constexpr std::string_view kBusy = "busy";

  /// Numbers a call.
  void issue(Call& call);
  Event queue(Call call, const Stream& stream);
  bool compares_every_call() const;

  /// A world and all communicators that were split off from it.
  struct Family {
    std::atomic<std::int64_t> bytes_sent[kCollectives] = {};
    Profiler times{0};
    // For the rank's host thread:
    CheckCollectives check = CheckCollectives::always;
    int steps = 0;
    // A stream's thread may destroy the communicator of its last message.
    std::mutex mutex;
    std::vector<Communicator*> members;  // under `mutex`
  };

  int rank_;
  std::vector<int> nodes_;
  int ranks_per_node_;
  std::shared_ptr<Family> family_;
  std::shared_ptr<std::atomic<std::int64_t>> own_bytes_sent_;
  // For the rank's host thread: calls are numbered in the order in which the program makes them.
  std::uint64_t calls_ = 0;
  CallHistory history_;
};

}  // namespace tessera
