// Grades a virtual clock against sharding/plan/virtual_clock.h, on steps with random work and waits.
#include <fmt/format.h>

#include <cmath>

#include "examples/course/12_clock/clock.h"
#include "examples/course/grader.h"
#include "runtime/random.h"
#include "sharding/plan/virtual_clock.h"

namespace tessera::course {
namespace {

constexpr int kSteps = 200;

const std::string kStreams[] = {"compute", "communication"};

struct Case {
  std::vector<Entry> entries;
  Timeline expected;
};

/// A step of up to 24 entries. Every fourth one is a wait for an entry of the other stream.
Case make_case(int number) {
  const RandomStream random(11, "clock", static_cast<std::uint64_t>(number), 0);
  std::uint64_t draws = 0;
  const auto below = [&](std::uint64_t n) { return static_cast<int>(random.below(draws++, n)); };
  Case result;
  StreamLog log;
  log.start();
  const int count = 1 + below(24);
  for (int i = 0; i < count; ++i) {
    Entry entry = {.stream = below(2)};
    const std::string& stream = kStreams[entry.stream];
    const int awaited = below(4) == 0 ? log.last_of(kStreams[1 - entry.stream]) : -1;
    if (awaited >= 0) {
      entry.waits_for = awaited;
      log.add_wait(stream, awaited);
    } else {
      entry.seconds = 0.001 * (1 + below(1000));
      const bool computes = entry.stream == kComputation;
      log.add_work(stream, computes ? Work{.kind = Work::Kind::forward, .amount = entry.seconds}
                                    : Work{.kind = Work::Kind::transfer,
                                           .amount = entry.seconds,
                                           .rounds = 1,
                                           .ranks = 2,
                                           .ranks_on_node = 2});
    }
    result.entries.push_back(entry);
  }
  const MachineRates machine = {.name = "a unit of everything per second",
                                .compute = {{.forward = 1.0, .backward = 1.0, .memory = 1.0}},
                                .links = {{.bandwidth = 1.0}}};
  result.expected = run_clock(log, machine, {.on_node = 2});
  return result;
}

bool differ(double a, double b) {
  return !(std::abs(a - b) < 1e-9);
}

std::string wrong_intervals() {
  for (int number = 0; number < kSteps; ++number) {
    const Case one = make_case(number);
    const std::vector<Interval> found = intervals_of(one.entries);
    if (found.size() != one.entries.size()) {
      return fmt::format("{} entries have {} intervals", one.entries.size(), found.size());
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      const Entry& entry = one.entries[i];
      const Timeline::Interval& right = one.expected.entries[i];
      const bool begin = differ(found[i].begin, right.begin);
      if (!begin && !differ(found[i].end, right.end)) continue;
      return fmt::format(
          "step {}: entry {}, {}, {} at {:.3f} instead of {:.3f}: {}", number, i,
          entry.waits_for < 0 ? "work" : fmt::format("a wait for entry {}", entry.waits_for),
          begin ? "begins" : "ends", begin ? found[i].begin : found[i].end,
          begin ? right.begin : right.end,
          begin ? "an entry begins when the one before it in its own stream has ended"
                : "a wait may be over at once, and work takes its seconds");
    }
  }
  return "";
}

std::string wrong_exposed() {
  for (int number = 0; number < kSteps; ++number) {
    const Case one = make_case(number);
    const double found = exposed(one.entries, intervals_of(one.entries));
    if (!differ(found, one.expected.exposed)) continue;
    return fmt::format(
        "step {}: computation waits for {:.3f} s, not {:.3f}: only waits of the "
        "compute stream count, for as long as they last",
        number, one.expected.exposed, found);
  }
  return "";
}

std::string wrong_path() {
  for (int number = 0; number < kSteps; ++number) {
    const Case one = make_case(number);
    const double found = computing_on_critical_path(one.entries, intervals_of(one.entries));
    const auto right = one.expected.chain.find("compute");
    const double expected = right == one.expected.chain.end() ? 0.0 : right->second;
    if (!differ(found, expected)) continue;
    return fmt::format(
        "step {}: the critical path computes for {:.3f} s, not {:.3f}: from where "
        "does it come when a wait took no time?",
        number, expected, found);
  }
  return "";
}

}  // namespace
}  // namespace tessera::course

int main() {
  using namespace tessera::course;
  Grader grader;
  grader.run("intervals", wrong_intervals);
  grader.run("exposed", wrong_exposed);
  grader.run("critical path", wrong_path);
  return grader.status();
}
