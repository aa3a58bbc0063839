// A rank's threads, and loops over them.
//
// A loop is cut into chunks whose size depends on the problem only, not on the number of threads.
// A reduction writes one partial result per chunk and adds these in chunk order, so results have the
// same bits with any number of threads.
//
// Every thread begins with its own share of the chunks, then helps the others. Shares are neighbours:
// the first thread's are the first rows of most loops. So a thread finds its results of the loop
// before in its own cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "runtime/integer.h"

namespace tessera {

/// A fixed group of threads: the caller and `size - 1` workers. A team of one starts no thread.
class ThreadTeam {
 public:
  /// `idle`: the team of a dry run. It has a size, but no threads, and run() does nothing.
  explicit ThreadTeam(int size, bool idle = false);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const;
  /// Binds worker i to cores[i] for good. cores[0] is for the caller, which binds itself. Raises Error
  /// if the system refuses one.
  void bind_workers(std::span<const int> cores);
  /// Calls task(i) once for every i in [0, count), in any order and on any of the threads, and
  /// returns when all calls are done. Rethrows the first exception. A call from within a task, or from a
  /// second thread while the team is busy, runs on the calling thread alone.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& task);
  /// The same for groups of neighbouring tasks: group g ends before task ends[g]. No task begins
  /// before all those of the groups before have been taken. So it may wait for their results.
  void run_in_groups(std::span<const std::int64_t> ends,
                     const std::function<void(std::int64_t)>& task);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// body(begin, end) over [0, total) in chunks of `chunk` (the last may be short), on the current
/// context's threads. The context, stream and category of the caller are current in every body.
void parallel_for(std::int64_t total, std::int64_t chunk,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body);

/// body() on the calling thread: the part of a kernel that is not a loop for many threads.
void on_one_thread(const std::function<void()>& body);

/// Number of chunks that parallel_for(total, chunk) makes.
inline std::int64_t chunk_count(std::int64_t total, std::int64_t chunk) {
  return ceil_div(total, chunk);
}

/// The number of CPUs that this process may run on.
int available_threads();

}  // namespace tessera
