// A virtual clock: when each entry of a step begins and ends.
#pragma once

#include <span>
#include <vector>

namespace tessera::course {

constexpr int kComputation = 0, kCommunication = 1;

/// Work, or a wait for an earlier entry. The entries of a stream run one after another. Streams run
/// side by side.
struct Entry {
  int stream = kComputation;
  /// The length of work; 0 for a wait.
  double seconds = 0.0;
  /// A wait ends when this entry has ended; -1 for work.
  int waits_for = -1;
};

struct Interval {
  double begin = 0.0, end = 0.0;
};

/// When each entry begins and ends.
std::vector<Interval> intervals_of(std::span<const Entry> entries);

/// The time for which computation waits.
double exposed(std::span<const Entry> entries, std::span<const Interval> intervals);

/// The seconds of computation on the critical path, followed back from the entry that ends last. A wait that took time
/// leads to the entry that it waited for. Any other entry leads to the one before it in its stream.
double computing_on_critical_path(std::span<const Entry> entries,
                                  std::span<const Interval> intervals);

}  // namespace tessera::course
