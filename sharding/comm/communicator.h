// Communicator: collectives among a group of ranks.
//
// Every rank of the group makes the same calls in the same order. With N ranks, this one being r,
// and tensors of N equal parts in rank order:
//
//   all_gather      whole, whose part r is filled, gets the other ranks' parts        (in place)
//   reduce_scatter  part = reduction over ranks of part r of their `whole`
//   all_reduce      x = reduction over ranks of x                                     (in place)
//   broadcast       x = root's x                                                      (in place)
//   reduce          root's x = reduction over ranks of x; on the others x is used up  (in place)
//   all_to_all      part s of `received` = part r of rank s's `sent`
//   barrier         nobody goes on before all have arrived
//
// A call is queued on `stream` and returns the event behind it; it holds its tensors until then.
// Each call takes a list of tensors, which is one exchange: FSDP gathers every parameter of a unit
// in place, without packing. All calls of one communicator go to streams that run them in one
// order; for two streams that overlap, split off a second communicator.
//
// Reductions follow the tree of kernels/tree_reduce/op.h, so results do not depend on timing, nor
// on whether ranks are threads (threads.h) or processes (mpi.h). A call shows in the profiler as a
// span on its stream, named by its collective and label.
//
// Ranks compare what they call: a mismatch raises Error on every rank, naming both sides. Every
// wait has a deadline, after which Error names the ranks that are missing. `abort` makes the other
// ranks raise Error with the reason instead of waiting.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/profiler.h"
#include "runtime/stream.h"
#include "sharding/comm/call.h"

namespace tessera {

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

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
  Event barrier(const Stream& stream);

  /// The communicator of those ranks that pass the same color, ordered by their rank here. Blocks.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  /// Makes every rank that waits, now or later, raise Error with `reason`.
  virtual void abort(const std::string& reason) = 0;
  /// Why the ranks were made to raise, if they were. Any thread may ask.
  virtual std::optional<std::string> aborted() = 0;

  /// The ranks compare a call, as before making it, and make none. Blocks. For a communicator that
  /// moves tensors by other means and leaves agreement to this one.
  virtual void agree(const Call& call) = 0;

  /// Bytes that other ranks received from this one, by collective, since the start; through this
  /// communicator and all that were split off from it.
  std::int64_t bytes_sent(Collective collective) const {
    return traffic_->bytes_sent[static_cast<int>(collective)].load();
  }
  std::int64_t bytes_sent() const;
  /// Milliseconds that calls took on their streams, waiting for other ranks included, since the
  /// start; of this communicator and all that were split off from it. On a GPU it is the GPU's
  /// time, and the host waits until all calls are done.
  double busy_ms() const { return traffic_->times.total_ms(kBusy); }

 protected:
  /// `parent`: what this one is split off from, if anything.
  Communicator(int rank, int size, const Communicator* parent)
      : rank_(rank),
        size_(size),
        traffic_(parent != nullptr ? parent->traffic_ : std::make_shared<Traffic>()) {}

  /// Carries out a call, on the thread of its stream, and returns the bytes this rank sent.
  virtual std::int64_t perform(const Call& call) = 0;

 private:
  static constexpr std::string_view kBusy = "busy";

  Event queue(Call call, const Stream& stream);

  struct Traffic {
    std::atomic<std::int64_t> bytes_sent[kCollectives] = {};
    Profiler times{0};
  };

  int rank_;
  int size_;
  std::shared_ptr<Traffic> traffic_;
};

}  // namespace tessera
