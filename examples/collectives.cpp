// Prints every collective element by element, for docs/collectives.md.
//
//   build/bin/collectives [RANKS]
//
// Element p of rank r begins as 10 r + p. A dot is memory that the call does not define.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "examples/ranks.h"
#include "sharding/comm/threads/threads.h"

using namespace tessera;

namespace {

constexpr float kUndefined = std::numeric_limits<float>::quiet_NaN();
constexpr int kRoot = 1;

using Row = std::vector<float>;

/// One line of the output: a rank's tensor before and after a call, and the bytes that it sent.
struct Line {
  Row before, after;
  std::int64_t sent = 0;
};

struct Example {
  std::string name;
  std::vector<Line> ranks;
};

std::string text_of(const Row& row) {
  std::string text;
  for (const float value : row) {
    text += std::isnan(value) ? "   ." : fmt::format("{:4.0f}", value);
  }
  return text;
}

/// A rank's part of the examples. Each call has one element for each rank.
class Demonstration {
 public:
  Demonstration(Communicator& world, std::vector<Example>& examples)
      : world_(world), examples_(examples), ranks_(static_cast<std::size_t>(world.size())) {}

  void all_gather() {
    const Tensor whole = tensor(only(own(), full()[own()]));
    show("all_gather", whole, [&] { world_.all_gather({whole}, stream()); });
  }
  void reduce_scatter() {
    const Tensor whole = tensor(full());
    const Tensor part = whole.slice(world_.rank(), world_.rank() + 1);
    show("reduce_scatter", whole, [&] { world_.reduce_scatter({part}, {whole}, stream()); });
    last().after = only(own(), part.item<float>());  // the other parts are not defined
  }
  void all_reduce() {
    const Tensor whole = tensor(full());
    show("all_reduce", whole, [&] { world_.all_reduce({whole}, stream()); });
  }
  void broadcast() {
    const Tensor whole = tensor(world_.rank() == kRoot ? full() : Row(ranks_, kUndefined));
    show("broadcast", whole, [&] { world_.broadcast({whole}, kRoot, stream()); });
  }
  void reduce() {
    const Tensor whole = tensor(full());
    show("reduce", whole, [&] { world_.reduce({whole}, kRoot, stream()); });
    if (world_.rank() != kRoot) last().after = Row(ranks_, kUndefined);
  }
  void all_to_all() {
    const Tensor sent = tensor(full());
    const Tensor received = tensor(Row(ranks_, kUndefined));
    show("all_to_all", sent, [&] { world_.all_to_all({received}, {sent}, stream()); });
    last().after = received.to_vector<float>();
  }

 private:
  std::size_t own() const { return static_cast<std::size_t>(world_.rank()); }
  static const Stream& stream() { return context().compute_stream(); }

  Row full() const {
    Row row;
    for (std::size_t p = 0; p < ranks_; ++p) row.push_back(static_cast<float>(10 * own() + p));
    return row;
  }
  Row only(std::size_t place, float value) const {
    Row row(ranks_, kUndefined);
    row[place] = value;
    return row;
  }
  Tensor tensor(const Row& row) const { return Tensor::from(row, {world_.size()}); }
  Line& last() { return examples_[shown_ - 1].ranks[own()]; }

  template <typename Call>
  void show(const std::string& name, const Tensor& tensor, Call call) {
    Example& example = examples_[shown_++];
    Line& line = example.ranks[own()];
    if (own() == 0) example.name = name;
    line.before = tensor.to_vector<float>();
    line.sent = -world_.bytes_sent();
    call();
    stream().synchronize();
    line.sent += world_.bytes_sent();
    line.after = tensor.to_vector<float>();
  }

  Communicator& world_;
  std::vector<Example>& examples_;
  std::size_t ranks_, shown_ = 0;
};

void print(const Example& example) {
  fmt::print("{}\n", example.name);
  for (std::size_t rank = 0; rank < example.ranks.size(); ++rank) {
    const Line& line = example.ranks[rank];
    fmt::print("  rank {} {}  ->{}   sent {:2} bytes\n", rank, text_of(line.before),
               text_of(line.after), line.sent);
  }
}

}  // namespace

int main(int argument_count, char** arguments) try {
  const int ranks = ranks_of(argument_count, arguments);
  std::vector<Example> examples(
      6, Example{.name = {}, .ranks = std::vector<Line>(static_cast<std::size_t>(ranks))});
  run_ranks({.ranks = ranks, .threads = 1}, [&](Communicator& world) {
    Demonstration shown(world, examples);
    shown.broadcast();
    shown.all_gather();
    shown.reduce_scatter();
    shown.all_reduce();
    shown.reduce();
    shown.all_to_all();
  });
  for (const Example& example : examples) print(example);
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "collectives: {}\n", error.what());
  return 1;
}
