#include "runtime/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cores.h"
#include "runtime/countdown.h"
#include "runtime/spin.h"

namespace tessera {

struct ThreadTeam::Impl {
  using Task = std::function<void(std::int64_t)>;

  /// A thread's tasks of a group that no thread has taken: [next, end).
  struct alignas(64) Share {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };

  Impl(int size, bool idle) : size(std::max(1, size)), idle(idle) {
    if (idle) return;
    try {
      for (int i = 1; i < this->size; ++i) workers.push_back(start_unbound([this, i] { work(i); }));
    } catch (const std::system_error& error) {
      dismiss();  // the threads that did start
      fail("cannot start a team of {} threads: {}", size, error.what());
    }
  }

  ~Impl() { dismiss(); }

  void dismiss() {
    publish(nullptr, {});
    for (auto& worker : workers) worker.join();
  }

  void run(std::span<const std::int64_t> ends, const Task& new_task) {
    if (idle || ends.empty()) return;
    if (size == 1 || ends.back() <= 1 || busy.exchange(true, std::memory_order_acquire)) {
      for (std::int64_t i = 0; i < ends.back(); ++i) new_task(i);
      return;
    }
    publish(&new_task, ends);
    take_tasks(0);
    wait_for_zero(pending);
    const std::exception_ptr raised = std::exchange(failure, nullptr);
    busy.store(false, std::memory_order_release);
    if (raised) std::rethrow_exception(raised);
  }

  /// Starts a round: every worker wakes, takes tasks, and reports back through `pending`.
  void publish(const Task* new_task, std::span<const std::int64_t> ends) {
    task = new_task;
    divide(ends);
    failed.store(false, std::memory_order_relaxed);
    pending.store(static_cast<int>(workers.size()), std::memory_order_relaxed);
    round.fetch_add(1, std::memory_order_release);
    round.notify_all();
  }

  /// Cuts every group of tasks into one share for each thread.
  void divide(std::span<const std::int64_t> ends) {
    groups = ends.size();
    const std::size_t needed = groups * static_cast<std::size_t>(size);
    if (shares.size() < needed) shares = std::vector<Share>(needed);
    std::int64_t begin = 0;
    for (std::size_t group = 0; group < groups; begin = ends[group++]) {
      const std::int64_t count = ends[group] - begin;
      for (int t = 0; t < size; ++t) {
        Share& share = share_of(group, t);
        share.next.store(begin + count * t / size, std::memory_order_relaxed);
        share.end = begin + count * (t + 1) / size;
      }
    }
  }

  Share& share_of(std::size_t group, int thread) {
    return shares[group * static_cast<std::size_t>(size) + static_cast<std::size_t>(thread)];
  }

  /// A thread takes the tasks of its own share of a group, and of the others', before the next group's.
  void take_tasks(int thread) {
    for (std::size_t group = 0; group < groups; ++group) {
      for (int i = 0; i < size; ++i) take_share(share_of(group, (thread + i) % size));
    }
  }

  void take_share(Share& share) {
    while (share.next.load(std::memory_order_relaxed) < share.end &&
           !failed.load(std::memory_order_relaxed)) {
      const std::int64_t i = share.next.fetch_add(1, std::memory_order_relaxed);
      if (i >= share.end) return;
      try {
        (*task)(i);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        failed.store(true, std::memory_order_relaxed);
      }
    }
  }

  void work(int thread) {
    std::uint32_t seen = 0;
    for (;;) {
      const bool begun = spin_until([&] { return round.load(std::memory_order_acquire) != seen; });
      if (!begun) round.wait(seen, std::memory_order_acquire);
      ++seen;
      if (task == nullptr) return;
      take_tasks(thread);
      count_down(pending);
    }
  }

  const int size;
  const bool idle;
  // A flag instead of a mutex: a thread that holds it asks again in a nested loop.
  std::atomic<bool> busy{false};
  std::vector<std::thread> workers;
  // The round: written by the caller before `round` is bumped, read by workers after.
  const Task* task = nullptr;
  std::size_t groups = 0;
  std::vector<Share> shares;  // of every group and thread
  std::atomic<std::uint32_t> round{0};
  std::atomic<bool> failed{false};
  std::atomic<int> pending{0};
  std::mutex failure_mutex;
  std::exception_ptr failure;
};

ThreadTeam::ThreadTeam(int size, bool idle) : impl_(std::make_unique<Impl>(size, idle)) {}
ThreadTeam::~ThreadTeam() = default;

int ThreadTeam::size() const {
  return impl_->size;
}

void ThreadTeam::bind_workers(std::span<const int> cores) {
  check(static_cast<int>(cores.size()) == size(), "{} cores for a team of {} threads", cores.size(),
        size());
  std::size_t thread = 0;
  for (std::thread& worker : impl_->workers) {
    bind_to_core(worker.native_handle(), cores[++thread]);
  }
}

void ThreadTeam::run(std::int64_t count, const std::function<void(std::int64_t)>& task) {
  impl_->run({&count, 1}, task);
}
void ThreadTeam::run_in_groups(std::span<const std::int64_t> ends,
                               const std::function<void(std::int64_t)>& task) {
  impl_->run(ends, task);
}

namespace {

/// Makes the caller's context, stream and category current on a thread of its team while a chunk
/// runs, so every chunk runs under the same conditions.
class CallersScope {
 public:
  CallersScope(RankContext& context, const Stream& stream, Category category) {
    if (context_or_null() != nullptr) return;  // this is the caller
    context_.emplace(context);
    stream_.emplace(stream);
    category_.emplace(category);
  }

 private:
  std::optional<ContextGuard> context_;
  std::optional<StreamGuard> stream_;
  std::optional<CategoryScope> category_;
};

}  // namespace

void parallel_for(std::int64_t total, std::int64_t chunk,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
  check(chunk >= 1, "parallel_for: the chunk is {}; expected at least 1", chunk);
  RankContext& here = context();
  const Stream& stream = current_stream();
  const Category category = current_category();
  here.threads().run(chunk_count(total, chunk), [&](std::int64_t i) {
    const CallersScope scope(here, stream, category);
    body(i * chunk, std::min(total, (i + 1) * chunk));
  });
}

void on_one_thread(const std::function<void()>& body) {
  context().threads().run(1, [&](std::int64_t) { body(); });
}

int available_threads() {
  const int cores = static_cast<int>(allowed_cores().size());
  return cores > 0 ? cores : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace tessera
