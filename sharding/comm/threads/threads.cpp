#include "sharding/comm/threads/threads.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "runtime/backends.h"
#include "runtime/check.h"
#include "runtime/cuda/device.h"
#include "runtime/describe.h"
#include "sharding/comm/devices.h"

namespace tessera {
namespace {

/// Where the threads of a group find each other for a call, and part again.
///
///   open     all ranks have come with their call; from here on they read each other's tensors
///   halfway  all ranks have done the first half of a collective of two phases
///   close    all ranks have stopped reading; tensors may go
///
/// An abort or a deadline ends open and halfway for every rank, for good. close always waits,
/// because another rank may still be reading; it cannot hang, since between open and close ranks
/// only copy, add and meet halfway.
class Meeting {
 public:
  /// `members`: what the ranks are called in messages.
  Meeting(std::vector<int> members, std::chrono::milliseconds deadline)
      : deadline_(deadline), members_(std::move(members)), here_(members_.size(), false) {}

  int ranks() const { return static_cast<int>(members_.size()); }
  int name(int rank) const { return members_[rank]; }
  std::chrono::milliseconds deadline() const { return deadline_; }

  void open(int rank, const std::string& what) {
    std::unique_lock lock(mutex_);
    if (gather(lock, rank, what)) reading_ = ranks();
  }

  void halfway(int rank, const std::string& what) {
    std::unique_lock lock(mutex_);
    gather(lock, rank, what);
  }

  void close() {
    std::unique_lock lock(mutex_);
    if (--reading_ == 0) return changed_.notify_all();
    linger(lock, [&] { return reading_ == 0; });
    changed_.wait(lock, [&] { return reading_ == 0; });
  }

  /// Ends this meeting, and those of all groups split off from it.
  void abort(const std::string& reason) {
    std::vector<std::weak_ptr<Meeting>> children;
    {
      const std::lock_guard lock(mutex_);
      if (!aborted_) aborted_ = reason;
      children = children_;
    }
    changed_.notify_all();
    for (const auto& child : children) {
      if (const auto meeting = child.lock()) meeting->abort(reason);
    }
  }

  std::optional<std::string> aborted() {
    const std::lock_guard lock(mutex_);
    return aborted_;
  }

  void adopt(const std::shared_ptr<Meeting>& child) {
    std::optional<std::string> aborted;
    {
      const std::lock_guard lock(mutex_);
      children_.push_back(child);
      aborted = aborted_;
    }
    if (aborted) child->abort(*aborted);
  }

 private:
  /// Returns when all ranks have come; true for the last of them.
  bool gather(std::unique_lock<std::mutex>& lock, int rank, const std::string& what) {
    if (aborted_) throw Error(*aborted_);
    const std::uint64_t round = round_;
    here_[rank] = true;
    if (++arrived_ == ranks()) {
      arrived_ = 0;
      here_.assign(here_.size(), false);
      ++round_;
      changed_.notify_all();
      return true;
    }
    linger(lock, [&] { return round_ != round; });
    changed_.wait_for(lock, deadline_, [&] { return round_ != round || aborted_; });
    if (round_ != round) return false;
    if (!aborted_) {
      aborted_ = fmt::format("rank {} waited {} ms in {} for rank{}", name(rank), deadline_.count(),
                             what, list_of_ranks(missing()));
      changed_.notify_all();
    }
    throw Error(*aborted_);
  }

  /// Looks for a short while whether `done`, before the caller goes to sleep: most ranks come and
  /// part within microseconds of each other, and waking a sleeping thread costs tens of them. Each
  /// look offers the core to other threads first.
  template <typename Done>
  void linger(std::unique_lock<std::mutex>& lock, const Done& done) {
    constexpr int kLooks = 200;
    lock.unlock();
    for (int i = 0; i < kLooks && !done(); ++i) std::this_thread::yield();
    lock.lock();
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < here_.size(); ++i) {
      if (!here_[i]) ranks.push_back(members_[i]);
    }
    return ranks;
  }

  const std::chrono::milliseconds deadline_;
  const std::vector<int> members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> here_;
  int arrived_ = 0;
  std::atomic<std::uint64_t> round_ = 0;  // these two are written under the mutex only
  std::atomic<int> reading_ = 0;
  std::optional<std::string> aborted_;
  std::vector<std::weak_ptr<Meeting>> children_;
};

/// What the threads of a group share. A rank writes its own slots before open and reads the others'
/// between open and close.
///
/// Threads meet on the host. On a GPU a call has then only been queued, and what the threads have
/// agreed upon is told to the streams by events: nobody waits on the host for a device, and nothing
/// on a device waits for a host. On the CPU a call runs when it is made and its events have passed.
struct Group {
  Group(const std::vector<int>& members, std::chrono::milliseconds deadline)
      : meeting(members, deadline),
        calls(members.size(), nullptr),
        fingerprints(members.size(), 0),
        ready(members.size()),
        half_done(members.size()),
        done(members.size()),
        children(members.size()) {}

  Meeting meeting;
  std::vector<const Call*> calls;
  std::vector<std::uint64_t> fingerprints;
  // Points of the ranks' streams: the rank's tensors may be read; its first half has been done; it
  // has stopped reading. Each is written before the meeting of its kind and read after it, and is
  // written again only when all ranks have come to the next call, or left this one.
  std::vector<Event> ready;
  std::vector<Event> half_done;
  std::vector<Event> done;
  std::vector<std::shared_ptr<Group>> children;  // of split: from each new group's first rank
};

class ThreadCommunicator final : public Communicator {
 public:
  using SharedGroup = std::shared_ptr<Group>;

  static SharedGroup make_group(const std::vector<int>& members,
                                std::chrono::milliseconds deadline) {
    return std::make_shared<Group>(members, deadline);
  }

  ThreadCommunicator(SharedGroup group, int rank, const Communicator* parent = nullptr)
      : Communicator(rank, group->meeting.ranks(), parent), group_(std::move(group)) {}

  void abort(const std::string& reason) override { group_->meeting.abort(reason); }
  std::optional<std::string> aborted() override { return group_->meeting.aborted(); }
  void agree(const Call& call) override {
    meet(call, [] {});
  }

  std::unique_ptr<Communicator> split(int color) override {
    const Call call{.collective = Collective::split, .root = color};
    SharedGroup child;
    int rank_in_child = 0;
    meet(call, [&] {
      std::vector<int> members;
      for (int r = 0; r < size(); ++r) {
        if (theirs(r).root == color) members.push_back(r);
      }
      const int first = members.front();
      rank_in_child = static_cast<int>(std::lower_bound(members.begin(), members.end(), rank()) -
                                       members.begin());
      if (rank() == first) {
        std::vector<int> names;
        for (const int r : members) names.push_back(group_->meeting.name(r));
        const SharedGroup made = make_group(names, group_->meeting.deadline());
        group_->meeting.adopt(std::shared_ptr<Meeting>(made, &made->meeting));
        group_->children[first] = made;
      }
      halfway(call);
      child = group_->children[first];
    });
    return std::make_unique<ThreadCommunicator>(std::move(child), rank_in_child, this);
  }

 protected:
  std::int64_t perform(const Call& call) override {
    group_->ready[rank()] = current_stream().record();
    meet(call, [&] {
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
  const Call& theirs(int rank) const { return *group_->calls[rank]; }
  /// The tensor that `rank` brought as number i.
  const Tensor& theirs(int rank, std::size_t i) const { return theirs(rank).brought()[i]; }

  /// Runs `work` between open and close. What it raises ends the call on every rank.
  void meet(const Call& call, const std::function<void()>& work) {
    group_->calls[rank()] = &call;
    group_->fingerprints[rank()] = fingerprint(call, calls_);
    group_->meeting.open(rank(), describe(call, calls_));
    std::exception_ptr failure;
    try {
      check_agreement();
      work();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      abort(error.what());
      stop_reading();
    }
    group_->meeting.close();
    ++calls_;
    wait_for_others(group_->done);
    if (failure) std::rethrow_exception(failure);
  }

  void halfway(const Call& call) { group_->meeting.halfway(rank(), describe(call, calls_)); }

  /// The current stream passes from one part of a call to the next: what this rank queues from now
  /// on starts after the other ranks' points.
  void wait_for_others(const std::vector<Event>& points) const {
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) current_stream().wait(points[r]);
    }
  }

  /// After a failure: waits for what this rank has queued of the call, which waits for nobody.
  void stop_reading() {
    group_->done[rank()] = {};
    try {
      current_stream().synchronize();
    } catch (const std::exception&) {  // the device has failed, so it reads nothing
    }
  }

  void check_agreement() const {
    const int other = first_disagreement(group_->fingerprints);
    if (other == 0) return;
    fail_disagreement(group_->meeting.name(0), describe(theirs(0), calls_),
                      group_->meeting.name(other), describe(theirs(other), calls_));
  }

  /// Does its share of tensor i of the call.
  void exchange(const Call& call, std::size_t i) const {
    const Tensor& output = call.outputs[i];
    switch (call.collective) {
      case Collective::all_gather:
        for (int r = 0; r < size(); ++r) {
          if (r != rank()) copy_share(output, r, theirs(r, i), r);
        }
        return;
      case Collective::reduce_scatter:
        return reduce_share(output, call, i);
      case Collective::all_to_all:
        for (int r = 0; r < size(); ++r) copy_share(output, r, theirs(r, i), rank());
        return;
      case Collective::broadcast:
        if (rank() != call.root) output.copy_from(theirs(call.root, i));
        return;
      default:
        return;
    }
  }

  /// all_reduce and reduce: every rank reduces its share of the elements in place, which only it
  /// reads and writes in this half; then the shares are collected.
  void exchange_reduced(const Call& call) {
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      reduce_share(elements(call.outputs[i], share(call, i)), call, i);
    }
    group_->half_done[rank()] = current_stream().record();
    halfway(call);
    wait_for_others(group_->half_done);
    if (call.collective == Collective::reduce && rank() != call.root) return;
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      for (int r = 0; r < size(); ++r) {
        if (r != rank()) copy_share(call.outputs[i], r, theirs(r, i), r);
      }
    }
  }

  ElementRange share(const Call& call, std::size_t i) const {
    return share_of(call.brought()[i].numel(), rank(), size());
  }

  void copy_share(const Tensor& to, int to_rank, const Tensor& from, int from_rank) const {
    elements(to, share_of(to.numel(), to_rank, size()))
        .copy_from(elements(from, share_of(from.numel(), from_rank, size())));
  }

  /// result = reduction over ranks of this rank's share of tensor i.
  void reduce_share(const Tensor& result, const Call& call, std::size_t i) const {
    Tensors sources;
    for (int r = 0; r < size(); ++r) sources.push_back(elements(theirs(r, i), share(call, i)));
    reduce_from_devices(result, sources, call.reduction);
  }

  SharedGroup group_;
  std::uint64_t calls_ = 0;
};

}  // namespace

void run_ranks(const ThreadRanksOptions& options, const std::function<void(Communicator&)>& body) {
  check(options.ranks >= 1, "there cannot be {} ranks", options.ranks);
  std::vector<int> members(static_cast<std::size_t>(options.ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto group = ThreadCommunicator::make_group(members, options.deadline);
  std::mutex mutex;
  std::optional<std::string> first_failure;
  const auto report = [&](int rank, const std::exception& error) {
    const std::string message = failure_of(rank, options.ranks, error.what());
    {
      const std::lock_guard lock(mutex);
      if (!first_failure) first_failure = message;
    }
    group->meeting.abort(message);
  };
  const auto run = [&](int rank) {
    try {
      ThreadCommunicator communicator(group, rank);
      RankContext context({.device = device_of_rank(options.device, rank),
                           .rank = rank,
                           .world_size = options.ranks,
                           .threads = options.threads,
                           .seed = options.seed});
      const ContextGuard guard(context);
      if constexpr (kHasCuda) {
        if (!context.device().is_cpu()) cuda::link_to_other_devices(context.device().index);
      }
      try {
        body(communicator);
      } catch (const std::exception& error) {
        // Before the context waits for its streams, which may be inside a collective.
        report(rank, error);
      }
    } catch (const std::exception& error) {
      report(rank, error);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < options.ranks; ++rank) threads.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : threads) thread.join();
  if (first_failure) throw Error(*first_failure);
}

}  // namespace tessera
