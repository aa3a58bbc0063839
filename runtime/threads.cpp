#include "runtime/threads.h"

#include <sched.h>

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
#include "runtime/countdown.h"
#include "runtime/spin.h"

namespace tessera {

struct ThreadTeam::Impl {
  Impl(int size, bool idle) : size(std::max(1, size)), idle(idle) {
    if (idle) return;
    try {
      for (int i = 1; i < this->size; ++i) workers.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      dismiss();  // the threads that did start
      fail("cannot start a team of {} threads: {}", size, error.what());
    }
  }

  ~Impl() { dismiss(); }

  void dismiss() {
    publish(nullptr, 0);
    for (auto& worker : workers) worker.join();
  }

  void run(std::int64_t count, const std::function<void(std::int64_t)>& body) {
    if (idle) return;
    if (size == 1 || count <= 1 || busy.exchange(true, std::memory_order_acquire)) {
      for (std::int64_t i = 0; i < count; ++i) body(i);
      return;
    }
    run_round(count, body);
    const std::exception_ptr raised = std::exchange(failure, nullptr);
    busy.store(false, std::memory_order_release);
    if (raised) std::rethrow_exception(raised);
  }

  void run_round(std::int64_t count, const std::function<void(std::int64_t)>& body) {
    publish(&body, count);
    take_chunks(body, count);
    wait_for_zero(pending);
  }

  /// Starts a round: every worker wakes, takes chunks, and reports back through `pending`.
  void publish(const std::function<void(std::int64_t)>* new_body, std::int64_t new_count) {
    body = new_body;
    count = new_count;
    next.store(0, std::memory_order_relaxed);
    pending.store(static_cast<int>(workers.size()), std::memory_order_relaxed);
    round.fetch_add(1, std::memory_order_release);
    round.notify_all();
  }

  void take_chunks(const std::function<void(std::int64_t)>& work_body, std::int64_t work_count) {
    for (;;) {
      const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= work_count) return;
      try {
        work_body(i);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        next.store(work_count, std::memory_order_relaxed);
      }
    }
  }

  void work() {
    std::uint32_t seen = 0;
    for (;;) {
      for (int spins = 0; round.load(std::memory_order_acquire) == seen; ++spins) {
        if (spins < kSpins) {
          spin(spins);
        } else {
          round.wait(seen, std::memory_order_acquire);
        }
      }
      ++seen;
      if (body == nullptr) return;
      take_chunks(*body, count);
      count_down(pending);
    }
  }

  const int size;
  const bool idle;
  // A flag instead of a mutex: a thread that holds it asks again in a nested loop.
  std::atomic<bool> busy{false};
  std::vector<std::thread> workers;
  // The round: written by the caller before `round` is bumped, read by workers after.
  const std::function<void(std::int64_t)>* body = nullptr;
  std::int64_t count = 0;
  std::atomic<std::uint32_t> round{0};
  std::atomic<std::int64_t> next{0};
  std::atomic<int> pending{0};
  std::mutex failure_mutex;
  std::exception_ptr failure;
};

ThreadTeam::ThreadTeam(int size, bool idle) : impl_(std::make_unique<Impl>(size, idle)) {}
ThreadTeam::~ThreadTeam() = default;

int ThreadTeam::size() const {
  return impl_->size;
}

void ThreadTeam::run(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  impl_->run(count, body);
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
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace tessera
