// StreamLog: the work and the waits that a dry run queues, in the program's order.
//
// A dry run (runtime/context.h) does nothing, so it has no times. Its log says which work each
// stream would run and which work waits for which. It is made by the program itself: streams, spans
// and marks write to it. With a cost for each piece of work a virtual clock gives every entry its
// time (sharding/plan/virtual_clock.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/category.h"
#include "runtime/stream.h"

namespace tessera {

/// A piece of work, in units that a machine's rates turn into seconds.
struct Work {
  enum class Kind {
    forward,   // floating-point operations of a forward pass
    backward,  // of a backward pass
    memory,    // bytes that are read or written
    transfer,  // bytes through a rank's link
  };
  Kind kind = Kind::memory;
  double amount = 0.0;
  /// The operations among them whose factors have 8 bits.
  double in_8_bits = 0.0;

  // For transfers:
  /// Messages that follow one another, if every rank writes to every other one.
  int rounds = 0;
  /// The ranks of the group (0: work of the host, dry_gpu.h), and how many of them share a node.
  int ranks = 1;
  int ranks_on_node = 1;
  /// Whether the receivers add or copy.
  bool adds = false;
  /// Whether a message goes to one rank only, in place of one to every other.
  bool to_one = false;
  /// Whether one rank sends all `amount` to every other one. In a ring the others pass it on.
  bool from_root = false;
  /// Whether all ranks get sums of all. A switch that adds sends fewer bytes.
  bool all_reduces = false;
};

class StreamLog {
 public:
  /// A piece of work, or a wait for all that a stream had done up to entry `waits_for` (-1: nothing
  /// of the log).
  struct Entry {
    std::string stream;
    std::optional<Work> work;
    int waits_for = -1;
  };
  /// A span, or a mark, which has begin == end: the numbers of entries before it and before its end.
  struct Span {
    std::string name;
    std::string stream;
    int begin = 0;
    int end = 0;
    bool instant = false;
    /// The rank's bytes on its device at the end, by category.
    std::array<std::int64_t, kCategories> held = {};
  };

  /// Empties the log and begins to write.
  void start();
  void stop() { writes_ = false; }

  const std::vector<Entry>& entries() const { return entries_; }
  /// In the order of their ends.
  const std::vector<Span>& spans() const { return spans_; }
  int size() const { return static_cast<int>(entries_.size()); }

  void add_work(const std::string& stream, const Work& work);
  void add_wait(const std::string& stream, int waits_for);
  void add_span(std::string_view name, std::string_view stream, int begin, int end);
  void add_mark(std::string_view name, std::string_view stream);
  /// The stream's last entry; -1 if it has none.
  int last_of(const std::string& stream) const;
  /// Numbers the times at which the log was started: points of earlier logs have passed.
  int generation() const { return generation_; }

 private:
  bool writes_ = false;
  int generation_ = 0;
  std::vector<Entry> entries_;
  std::vector<Span> spans_;
};

/// Adds work to the current stream's log. Does nothing outside of a dry run.
void log_work(const Work& work);
/// The same for bytes that a kernel reads or writes.
void log_memory(double bytes);

/// A stream of a dry run: runs work at once, on the calling thread, and logs work and waits.
Stream make_logged_stream(std::string name, int id, StreamLog& log);

}  // namespace tessera
