#include "sharding/comm/threads.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "runtime/check.h"

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
    if (--reading_ == 0) changed_.notify_all();
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
    changed_.wait_for(lock, deadline_, [&] { return round_ != round || aborted_; });
    if (round_ != round) return false;
    if (!aborted_) {
      aborted_ = fmt::format("rank {} waited {} ms in {} for rank{}", name(rank), deadline_.count(),
                             what, missing());
      changed_.notify_all();
    }
    throw Error(*aborted_);
  }

  /// "s 1, 3" or " 2".
  std::string missing() const {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < here_.size(); ++i) {
      if (!here_[i]) ranks.push_back(members_[i]);
    }
    return fmt::format("{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
  }

  const std::chrono::milliseconds deadline_;
  const std::vector<int> members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> here_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
  int reading_ = 0;
  std::optional<std::string> aborted_;
  std::vector<std::weak_ptr<Meeting>> children_;
};

/// What the threads of a group share. A rank writes its own slots before open and reads the others'
/// between open and close.
template <typename Call>
struct Group {
  Group(const std::vector<int>& members, std::chrono::milliseconds deadline)
      : meeting(members, deadline), calls(members.size(), nullptr), children(members.size()) {}

  Meeting meeting;
  std::vector<const Call*> calls;
  std::vector<std::shared_ptr<Group>> children;  // of split: from each new group's first rank
};

/// Elements [begin, end) of a tensor of any shape.
Tensor elements(const Tensor& tensor, std::int64_t begin, std::int64_t end) {
  return tensor.reshape({tensor.numel()}).slice(begin, end);
}

class ThreadCommunicator final : public Communicator {
 public:
  using SharedGroup = std::shared_ptr<Group<Call>>;

  static SharedGroup make_group(const std::vector<int>& members,
                                std::chrono::milliseconds deadline) {
    return std::make_shared<Group<Call>>(members, deadline);
  }

  ThreadCommunicator(SharedGroup group, int rank, const Communicator* parent = nullptr)
      : Communicator(rank, group->meeting.ranks(), parent), group_(std::move(group)) {}

  void abort(const std::string& reason) override { group_->meeting.abort(reason); }

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
    std::int64_t sent = 0;
    meet(call, [&] {
      for (std::size_t i = 0; i < call.outputs.size(); ++i) sent += exchange(call, i);
    });
    return sent;
  }

 private:
  const Call& theirs(int rank) const { return *group_->calls[rank]; }
  /// The tensor that `rank` brought as number i: what is read of it.
  const Tensor& theirs(int rank, std::size_t i) const {
    const Call& call = theirs(rank);
    return call.inputs.empty() ? call.outputs[i] : call.inputs[i];
  }

  /// Runs `work` between open and close. What it raises ends the call on every rank.
  void meet(const Call& call, const std::function<void()>& work) {
    group_->calls[rank()] = &call;
    group_->meeting.open(rank(), describe_call(call));
    std::exception_ptr failure;
    try {
      check_agreement();
      work();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      abort(error.what());
    }
    group_->meeting.close();
    ++calls_;
    if (failure) std::rethrow_exception(failure);
  }

  void halfway(const Call& call) { group_->meeting.halfway(rank(), describe_call(call)); }

  std::string describe_call(const Call& call) const {
    std::size_t bytes = 0;
    for (const Tensor& tensor : call.outputs) bytes += tensor.bytes();
    return fmt::format("call {}, {} of {} bytes in {} tensor{}{}{}", calls_,
                       name_of(call.collective), bytes, call.outputs.size(),
                       call.outputs.size() == 1 ? "" : "s", call.label.empty() ? "" : ", for ",
                       call.label);
  }

  static bool agree(const Call& a, const Call& b) {
    const auto same = [](const Tensors& x, const Tensors& y) {
      return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                        [](const Tensor& s, const Tensor& t) {
                          return s.numel() == t.numel() && s.dtype() == t.dtype();
                        });
    };
    return a.collective == b.collective && a.label == b.label && a.reduction == b.reduction &&
           (a.root == b.root || a.collective == Collective::split) && same(a.outputs, b.outputs) &&
           same(a.inputs, b.inputs);
  }

  /// Every rank compares all calls with the first rank's, so all come to the same verdict.
  void check_agreement() const {
    for (int r = 1; r < size(); ++r) {
      if (agree(theirs(0), theirs(r))) continue;
      fail("ranks disagree: rank {} makes {}, rank {} makes {}", group_->meeting.name(0),
           describe_call(theirs(0)), group_->meeting.name(r), describe_call(theirs(r)));
    }
  }

  /// Does its share of tensor i of the call; returns the bytes that others read from this rank.
  std::int64_t exchange(const Call& call, std::size_t i) {
    const Tensor& output = call.outputs[i];
    const std::int64_t bytes = static_cast<std::int64_t>(theirs(rank(), i).bytes());
    switch (call.collective) {
      case Collective::all_gather: {
        for (int r = 0; r < size(); ++r) {
          if (r != rank()) copy_part(output, r, theirs(r, i), r);
        }
        return bytes / size() * (size() - 1);
      }
      case Collective::reduce_scatter: {
        const std::int64_t part = output.numel();
        reduce_elements(output, call, i, part * rank(), part * (rank() + 1));
        return bytes / size() * (size() - 1);
      }
      case Collective::all_to_all: {
        for (int r = 0; r < size(); ++r) copy_part(output, r, theirs(r, i), rank());
        return bytes / size() * (size() - 1);
      }
      case Collective::broadcast: {
        if (rank() != call.root) output.copy_from(theirs(call.root, i));
        return rank() == call.root ? bytes * (size() - 1) : 0;
      }
      case Collective::all_reduce:
      case Collective::reduce:
        return exchange_reduced(call, i);
      default:
        return 0;
    }
  }

  /// all_reduce and reduce: every rank reduces its share of the elements in place, which only it
  /// reads and writes in this half; then the shares are collected.
  std::int64_t exchange_reduced(const Call& call, std::size_t i) {
    const Tensor& tensor = call.outputs[i];
    const std::int64_t count = tensor.numel();
    const auto begin = [&](int r) { return count * r / size(); };
    const std::int64_t share = begin(rank() + 1) - begin(rank());
    reduce_elements(elements(tensor, begin(rank()), begin(rank() + 1)), call, i, begin(rank()),
                    begin(rank() + 1));
    halfway(call);
    const bool collects = call.collective == Collective::all_reduce || rank() == call.root;
    for (int r = 0; collects && r < size(); ++r) {
      if (r == rank()) continue;
      elements(tensor, begin(r), begin(r + 1))
          .copy_from(elements(theirs(r, i), begin(r), begin(r + 1)));
    }
    const int readers =
        call.collective == Collective::all_reduce ? size() - 1 : (rank() == call.root ? 0 : 1);
    return (count - share + share * readers) * static_cast<std::int64_t>(size_of(tensor.dtype()));
  }

  void copy_part(const Tensor& to, int to_part, const Tensor& from, int from_part) const {
    const std::int64_t part = to.numel() / size();
    elements(to, part * to_part, part * (to_part + 1))
        .copy_from(elements(from, part * from_part, part * (from_part + 1)));
  }

  /// result = reduction over ranks of elements [begin, end) of tensor i.
  void reduce_elements(const Tensor& result, const Call& call, std::size_t i, std::int64_t begin,
                       std::int64_t end) const {
    Tensors sources;
    for (int r = 0; r < size(); ++r) sources.push_back(elements(theirs(r, i), begin, end));
    reduce_over_ranks(result, sources, call.reduction);
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
    const std::string message =
        options.ranks == 1 ? error.what() : fmt::format("rank {}: {}", rank, error.what());
    {
      const std::lock_guard lock(mutex);
      if (!first_failure) first_failure = message;
    }
    group->meeting.abort(message);
  };
  const auto run = [&](int rank) {
    try {
      ThreadCommunicator communicator(group, rank);
      RankContext context({.rank = rank,
                           .world_size = options.ranks,
                           .threads = options.threads,
                           .seed = options.seed});
      const ContextGuard guard(context);
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
