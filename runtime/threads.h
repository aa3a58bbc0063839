// A rank's threads, and loops over them.
//
// A loop is cut into chunks whose size depends on the problem only, not on the number of threads.
// Threads take the next free chunk. A reduction writes one partial result per chunk and adds these
// in chunk order, so results have the same bits with any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

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
  /// Calls body(i) once for every i in [0, count), in any order and on any of the threads, and
  /// returns when all calls are done. Rethrows the first exception. A call from within a body, or from a
  /// second thread while the team is busy, runs on the calling thread alone.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& body);

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
