#include "sharding/comm/threads/threads.h"

#include <algorithm>
#include <exception>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>

#include "runtime/backends.h"
#include "runtime/check.h"
#include "runtime/cuda/device.h"
#include "runtime/describe.h"
#include "sharding/comm/devices.h"
#include "sharding/comm/pin.h"
#include "sharding/comm/threads/rendezvous.h"

namespace tessera {
namespace {

/// The state that the threads of a group share. A rank writes its own slots before open and reads
/// the others' between open and close.
///
/// Threads wait for each other on the host. On a GPU a call has then only been queued, and events
/// pass the agreement on to the streams: no host waits for a device, and no device for a host. On
/// the CPU a call runs when it is made, and its events have passed.
struct Group {
  Group(const std::vector<int>& members, const Deadline& deadline)
      : rendezvous(std::make_shared<Rendezvous>(members, deadline)),
        calls(members.size(), nullptr),
        fingerprints(members.size(), 0),
        histories(members.size(), nullptr),
        ready(members.size()),
        half_done(members.size()),
        done(members.size()),
        children(members.size()) {}

  const std::shared_ptr<Rendezvous> rendezvous;
  std::vector<const Call*> calls;
  std::vector<std::uint64_t> fingerprints;
  std::vector<const CallHistory*> histories;
  // Points of the ranks' streams: the rank's tensors may be read; its first half has been done; it
  // has stopped reading. Each is written before the barrier of its kind and read after it. It is
  // written again only when all ranks have made the next call, or left this one.
  std::vector<Event> ready;
  std::vector<Event> half_done;
  std::vector<Event> done;
  std::vector<std::shared_ptr<Group>> children;  // for split: from each new group's first rank
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank, std::vector<int> nodes,
                     const Communicator* parent = nullptr)
      : Communicator(rank, std::move(nodes), parent, CheckCollectives::always),
        group_(std::move(group)) {}

  void abort(const std::string& reason) override { group_->rendezvous->abort(reason); }
  std::optional<std::string> aborted() override { return group_->rendezvous->aborted(); }
  void agree(const Call& call) override {
    together(call, [] {});
  }
  void agree(const CallHistory& history) override {
    group_->histories[rank()] = &history;
    together({.collective = Collective::barrier, .label = "the step's calls"},
             [&] { check_histories(); });
  }

 protected:
  std::unique_ptr<Communicator> split_by(const Call& call) override {
    std::shared_ptr<Group> child;
    std::vector<int> members;
    together(call, [&] {
      for (int r = 0; r < size(); ++r) {
        if (call_of(r).root == call.root) members.push_back(r);
      }
      const auto first = static_cast<std::size_t>(members.front());
      if (rank() == members.front()) group_->children[first] = make_child(members);
      halfway(call);
      child = group_->children[first];
    });
    const auto mine = std::lower_bound(members.begin(), members.end(), rank());
    std::vector<int> nodes;
    for (const int r : members) nodes.push_back(node_of(r));
    return std::make_unique<ThreadCommunicator>(
        std::move(child), static_cast<int>(mine - members.begin()), std::move(nodes), this);
  }

  std::int64_t perform(const Call& call) override {
    group_->ready[rank()] = current_stream().record();
    together(call, [&] {
      wait_for_others(group_->ready);
      if (call.collective == Collective::all_reduce || call.collective == Collective::reduce) {
        exchange_reduced(call);
      } else {
        for (std::size_t i = 0; i < call.outputs.size(); ++i) exchange(call, i);
      }
      group_->done[rank()] = current_stream().record();
    });
    return bytes_sent_by(call, rank(), size());
  }

 private:
  const Call& call_of(int rank) const { return *group_->calls[static_cast<std::size_t>(rank)]; }
  /// Tensor i of those that `rank` contributes.
  const Tensor& tensor_of(int rank, std::size_t i) const {
    return call_of(rank).inputs_or_outputs()[i];
  }
  /// The k-th rank after this one. Each rank begins to read at the next one, so that not all read
  /// from rank 0 at the same time.
  int rank_after(int k) const { return (rank() + k) % size(); }

  std::shared_ptr<Group> make_child(const std::vector<int>& members) const {
    std::vector<int> world_ranks;
    for (const int r : members) world_ranks.push_back(group_->rendezvous->world_rank(r));
    auto child = std::make_shared<Group>(world_ranks, group_->rendezvous->deadline());
    group_->rendezvous->add_child(child->rendezvous);
    return child;
  }

  /// Runs `work` between open and close. An exception in it ends the call on every rank.
  void together(const Call& call, const std::function<void()>& work) {
    group_->calls[rank()] = &call;
    group_->fingerprints[rank()] = fingerprint(call);
    group_->rendezvous->open(rank(), describe(call));
    std::exception_ptr failure;
    try {
      check_agreement();
      work();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      abort(failure_of(context().rank(), context().world_size(), error.what()));
      stop_reading();
    }
    group_->rendezvous->close();
    wait_for_others(group_->done);
    if (failure) std::rethrow_exception(failure);
  }

  void halfway(const Call& call) { group_->rendezvous->halfway(rank(), describe(call)); }

  /// The current stream passes from one part of a call to the next: work that this rank queues from
  /// now on starts after the other ranks' points.
  void wait_for_others(const std::vector<Event>& points) const {
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) current_stream().wait(points[static_cast<std::size_t>(r)]);
    }
  }

  /// After a failure: waits for this rank's queued part of the call, which waits for no other rank.
  void stop_reading() {
    group_->done[rank()] = {};
    try {
      current_stream().synchronize();
    } catch (const std::exception&) {  // the device has failed, so it reads nothing
    }
  }

  void check_agreement() const {
    const int other = first_disagreement(group_->fingerprints);
    if (other == 0) return check_unequal_parts();
    fail_disagreement(group_->rendezvous->world_rank(0), describe(call_of(0)),
                      group_->rendezvous->world_rank(other), describe(call_of(other)));
  }

  void check_unequal_parts() const {
    if (call_of(0).sent_counts.empty()) return;
    for (int to = 0; to < size(); ++to) {
      for (int from = 0; from < size(); ++from) {
        check_counts(group_->rendezvous->world_rank(from), call_of(from).sent_counts[to],
                     group_->rendezvous->world_rank(to), call_of(to).received_counts[from],
                     call_of(from));
      }
    }
  }

  void check_histories() const {
    std::vector<std::uint64_t> hashes;
    for (const CallHistory* const history : group_->histories) hashes.push_back(history->hash());
    const int other = first_disagreement(hashes);
    if (other == 0) return;
    const CallHistory& here = *group_->histories[0];
    const CallHistory& there = *group_->histories[static_cast<std::size_t>(other)];
    const std::uint64_t n = CallHistory::first_difference(here.summary(), there.summary());
    fail_disagreement(group_->rendezvous->world_rank(0), here.description(n),
                      group_->rendezvous->world_rank(other), there.description(n));
  }

  /// Does its share of tensor i of the call.
  void exchange(const Call& call, std::size_t i) const {
    const Tensor& output = call.outputs[i];
    switch (call.collective) {
      case Collective::all_gather:
        return gather_shares(output, i);
      case Collective::reduce_scatter:
        return reduce_share(output, call, i);
      case Collective::all_to_all:
        for (int k = 0; k < size(); ++k) {
          const int r = rank_after(k);
          received_part(call, i, r, size()).copy_from(sent_part(call_of(r), i, rank(), size()));
        }
        return;
      case Collective::shift:
        return output.copy_from(tensor_of((rank() - call.root + size()) % size(), i));
      case Collective::broadcast:
        if (rank() != call.root) output.copy_from(tensor_of(call.root, i));
        return;
      default:
        return;
    }
  }

  /// all_reduce and reduce: every rank reduces its share of the elements in place, which only it
  /// reads and writes in this half; then the shares are collected.
  void exchange_reduced(const Call& call) {
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      reduce_share(share_of(call.outputs[i], rank(), size()), call, i);
    }
    group_->half_done[rank()] = current_stream().record();
    halfway(call);
    wait_for_others(group_->half_done);
    if (call.collective == Collective::reduce && rank() != call.root) return;
    for (std::size_t i = 0; i < call.outputs.size(); ++i) gather_shares(call.outputs[i], i);
  }

  /// Copies every other rank's share of tensor i.
  void gather_shares(const Tensor& output, std::size_t i) const {
    for (int k = 1; k < size(); ++k) {
      const int r = rank_after(k);
      share_of(output, r, size()).copy_from(share_of(tensor_of(r, i), r, size()));
    }
  }

  /// result = reduction over ranks of this rank's share of tensor i.
  void reduce_share(const Tensor& result, const Call& call, std::size_t i) const {
    Tensors sources;
    for (int r = 0; r < size(); ++r) sources.push_back(share_of(tensor_of(r, i), rank(), size()));
    reduce_from_devices(result, sources, call.reduction, rank());
  }

  std::shared_ptr<Group> group_;
};

/// Collects failures of the ranks: the first one aborts them all.
class Failures {
 public:
  Failures(Rendezvous& rendezvous, int ranks) : rendezvous_(rendezvous), ranks_(ranks) {}

  void report(int rank, const std::string& reason) {
    // A rank that raises the reason of an abort has not failed by itself.
    const std::string message =
        rendezvous_.aborted() == reason ? reason : failure_of(rank, ranks_, reason);
    {
      const std::lock_guard lock(mutex_);
      if (!first_) first_ = message;
    }
    rendezvous_.abort(message);
  }
  const std::optional<std::string>& first() const { return first_; }

 private:
  Rendezvous& rendezvous_;
  int ranks_;
  std::mutex mutex_;
  std::optional<std::string> first_;
};

}  // namespace

void run_ranks(const WorldOptions& options, const std::function<void(Communicator&)>& body) {
  const int ranks = options.ranks == 0 ? 1 : options.ranks;
  check(ranks >= 1, "ranks is {}; expected at least 1", ranks);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  std::vector<int> nodes;
  for (const int r : members) {
    nodes.push_back(options.ranks_per_node > 0 ? r / options.ranks_per_node : 0);
  }
  const auto group = std::make_shared<Group>(members, options.deadline);
  Failures failures(*group->rendezvous, ranks);
  const auto run = [&](int rank) {
    try {
      ThreadCommunicator communicator(group, rank, nodes);
      RankContext context({.device = device_of_rank(options.device, rank),
                           .rank = rank,
                           .world_size = ranks,
                           .threads = options.threads,
                           .seed = options.seed});
      const ContextGuard guard(context);
      if constexpr (kHasCuda) {
        const bool reads_others = options.communicator != CommunicatorKind::nccl;
        if (reads_others && !context.device().is_cpu()) {
          cuda::link_to_other_devices(context.device().index);
        }
      }
      try {
        run_pinned(options.pin, communicator, body);
      } catch (const std::exception& error) {
        // Before the context waits for its streams, which may be inside a collective.
        failures.report(rank, error.what());
      }
    } catch (const std::exception& error) {
      failures.report(rank, error.what());
    }
  };
  // No rank begins before all threads have started: it could run out of memory first.
  std::promise<bool> started;
  const std::shared_future<bool> all_started = started.get_future().share();
  std::vector<std::thread> threads;
  try {
    for (int rank = 1; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        if (all_started.get()) run(rank);
      });
    }
    started.set_value(true);
    run(0);
  } catch (const std::system_error& error) {
    started.set_value(false);
    failures.report(static_cast<int>(threads.size()) + 1,
                    fmt::format("cannot start its thread, one of {}: {}; take fewer ranks", ranks,
                                error.what()));
  }
  for (std::thread& thread : threads) thread.join();
  if (failures.first()) throw Error(*failures.first());
}

}  // namespace tessera
