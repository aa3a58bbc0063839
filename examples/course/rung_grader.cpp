// The grader of the rungs: a climb() that grades the rung it is linked with.
//
//   PROGRAM --measure                    prints a line "RANKS BYTES_PER_STEP PEAK_BYTES WAITS" for 2 and 4 ranks
//   PROGRAM RANKS BYTES PEAK WAITS ...   grades against these lines of the reference. Prints "pass TEST" or
//                                        "fail TEST: feedback" for each test
//
// The right losses and values are those of rung 2. On rung 9 a rank has only its part of the experts. Rungs 10 and 11 train
// the model of 1_dense.cpp, and rung 12 runs a unit once for each micro-batch. So these three are graded by losses, bytes
// and memory alone.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "examples/course/grader.h"
#include "examples/ladder/ladder.h"
#include "runtime/check.h"
#include "runtime/hash.h"

#define main main_of_rung_2
#include "examples/ladder/2_ddp.cpp"
#undef main
#define main main_of_dense_rung_1
#define Training DenseTraining
#include "examples/ladder/1_dense.cpp"
#undef Training
#undef main

namespace tessera::ladder {
namespace {

constexpr int kSeeds = 20;
constexpr std::chrono::seconds kDeadline{20};

/// The values of a parameter when its unit was about to compute.
struct Sight {
  int step = 0;
  bool backward = false;
  std::string unit, parameter;
  std::uint64_t hash = 0;
  bool zeros = false;

  std::string place() const {
    return fmt::format("when {} computes in {}, step {} of {}", unit,
                       backward ? "backward" : "forward", step + 1, kSteps);
  }
};

struct Run {
  Outcome outcome;
  std::map<int, std::vector<Sight>> seen;  // by rank, in order
  /// One line, if a rank failed.
  std::string error;

  bool right(const Run& reference) const {
    return error.empty() && outcome.hash() == reference.outcome.hash();
  }
};

/// Sleeps for up to a millisecond before a quarter of the pieces of communication.
void delay_communication(int seed, int rank) {
  const RandomStream random(static_cast<std::uint64_t>(seed), "delays",
                            static_cast<std::uint64_t>(rank));
  communication_stream().set_delay([random, calls = std::uint64_t{0}]() mutable {
    const std::uint64_t microseconds = random.below(calls++, 4000);
    if (microseconds < 1000) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  });
}

/// Counts how often a rank waits for communication that no computation hides. Whenever a unit is about to compute, a
/// marker goes to the communication stream, which stops there until the next unit computes. A wait is exposed if
/// the stream has to pass the latest marker for it. So the count does not depend on time.
class Overlap {
 public:
  /// Called by the rank's thread, as all but the markers are.
  explicit Overlap(const Stream& stream) : stream_(stream) {
    stream_.set_delay([this] { ++pieces_; });
  }
  void compute() {
    open();
    stream_.enqueue([this, marker = latest_] { stop_at(marker); });
    ++markers_;
  }
  void wait_for(const Event& event) {
    {
      std::unique_lock lock(mutex_);
      while (!event.complete() && stopped_at_ != latest_) {
        changed_.wait_for(lock, std::chrono::microseconds(200));
      }
      if (event.complete()) return;
      ++exposed_;
    }
    compute();  // opens the marker, and puts another one behind all that this wait may be for
  }
  /// Lets the stream go on.
  void open() {
    const std::lock_guard lock(mutex_);
    ++latest_;
    changed_.notify_all();
  }
  int exposed() const { return exposed_; }
  /// Whether anything ran on the communication stream.
  bool used() const { return pieces_ > markers_; }

 private:
  void stop_at(int marker) {
    std::unique_lock lock(mutex_);
    stopped_at_ = marker;
    changed_.notify_all();
    // A rung that waits in another way is let on after a while.
    if (!changed_.wait_for(lock, kDeadline / 4, [&] { return latest_ > marker; })) ++exposed_;
  }

  const Stream stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int latest_ = 0, stopped_at_ = -1, exposed_ = 0, markers_ = 0;
  std::atomic<int> pieces_ = 0;
};

/// The most exposed waits of a rank; none if no rank uses the communication stream.
std::optional<int> exposed_waits(int ranks, const MakeRung& make) {
  std::mutex mutex;
  std::vector<std::unique_ptr<Overlap>> overlaps;
  run(
      ranks, ranks,
      [&](Communicator& world, int parts, Losses& losses) {
        std::unique_ptr<Rung> rung = make(world, parts, losses);
        const std::lock_guard lock(mutex);
        overlaps.push_back(std::make_unique<Overlap>(communication_stream()));
        Overlap& overlap = *overlaps.back();
        rung->watch([&overlap](int, bool, const Unit&) { overlap.compute(); });
        rung->watch_waits([&overlap](const Event* event) {
          event != nullptr ? overlap.wait_for(*event) : overlap.open();
        });
        return rung;
      },
      kDeadline);
  int most = 0;
  for (const auto& overlap : overlaps) {
    if (!overlap->used()) return std::nullopt;
    most = std::max(most, overlap->exposed());
  }
  return most;
}

/// Looks at part `part` of `parts`.
Sight look(int step, bool backward, const Unit& unit, const Parameter& parameter, int part,
           int parts) {
  Sight sight = {step, backward, unit.name(), parameter.name()};
  if (!parameter.is_open()) return sight;
  const std::vector<float> whole = parameter.data().to_vector<float>();
  const std::size_t count = whole.size() / static_cast<std::size_t>(parts);
  const auto values = std::span(whole).subspan(count * static_cast<std::size_t>(part), count);
  Fnv1a hash;
  hash.add(std::as_bytes(values));
  sight.hash = hash.value();
  sight.zeros = std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
  return sight;
}

/// Trains, delayed at random for a seed above 0. Looks at a rank's part of the experts, or at all.
Run train(int ranks, const MakeRung& make, int seed = 0, bool part_of_experts = false) {
  Run result;
  std::mutex mutex;
  const auto watched = [&](Communicator& world, int number_of_parts, Losses& losses) {
    if (seed > 0) delay_communication(seed, world.rank());
    std::unique_ptr<Rung> rung = make(world, number_of_parts, losses);
    const std::unique_lock lock(mutex);
    rung->watch([&sights = result.seen[world.rank()], part_of_experts, rank = world.rank(), ranks](
                    int step, bool backward, const Unit& unit) {
      for (const Parameter& parameter : unit.parameters()) {
        const bool part = part_of_experts && parameter.stacked();
        sights.push_back(look(step, backward, unit, parameter, part ? rank : 0, part ? ranks : 1));
      }
    });
    return rung;
  };
  try {
    result.outcome = run(ranks, ranks, watched, kDeadline);
  } catch (const Error& error) {
    result.error = error.what();
  }
  return result;
}

/// The first values that differ from the reference's, and the idea behind it. `repeats`: in every run.
std::string first_difference(const Run& run, const Run& reference, bool repeats = true) {
  const Sight* first = nullptr;
  const Sight* expected = nullptr;
  int rank = 0;
  for (const auto& [number, sights] : run.seen) {
    const std::vector<Sight>& right = reference.seen.at(number);
    for (std::size_t i = 0; i < std::min(sights.size(), right.size()); ++i) {
      if (sights[i].hash == right[i].hash) continue;
      if (first == nullptr || sights[i].step < first->step) {
        first = &sights[i], expected = &right[i], rank = number;
      }
      break;
    }
  }
  if (first == nullptr) return "every unit sees the right values, and the losses differ";
  const std::string tensor = fmt::format("{} on rank {}", first->parameter, rank);
  if (first->zeros && !expected->zeros) {
    return fmt::format("{} is all zeros {}: its values never arrived there", tensor,
                       first->place());
  }
  if (first->step == 0) {
    return fmt::format(
        "{} has wrong values {}: they have not arrived yet, or others are in their place", tensor,
        first->place());
  }
  const std::string later =
      repeats && first->step > 1
          ? "; after one update all was right: are the gradients of the step before still there?"
          : "";
  return fmt::format(
      "{} has wrong values {}: its last update used a wrong sum of gradients, or its new values "
      "did not travel{}",
      tensor, first->place(), later);
}

/// The first step with other losses than the reference has.
int first_wrong_step(const Run& run, const Run& reference) {
  int step = 0;
  while (step + 1 < kSteps && run.outcome.losses[static_cast<std::size_t>(step)] ==
                                  reference.outcome.losses[static_cast<std::size_t>(step)]) {
    ++step;
  }
  return step;
}

/// `again` is a second run.
std::string about_losses(const Run& run, const Run& reference, const Run& again) {
  if (!run.error.empty()) return run.error;
  const auto at = [](const Run& of, int step) {
    return fmt::format("{:.4f}", of.outcome.loss(step));
  };
  if (again.outcome.hash() != run.outcome.hash()) {
    return "the losses differ between two runs: something is read before it has arrived, or "
           "overwritten while it travels, or an event was stored in a copy of a slot "
           "(GradientSlot slot in place of GradientSlot& slot); " +
           first_difference(run, reference, /*repeats=*/false);
  }
  const int step = first_wrong_step(run, reference);
  if (at(run, kSteps - 1) == at(reference, kSteps - 1)) {
    return fmt::format(
        "the last loss agrees in four digits, but not in its bits, from step {} on: "
        "a sum has another order; {}",
        step + 1, first_difference(run, reference));
  }
  return fmt::format("the loss of step {} is {:.7f} instead of {:.7f}; {}", step + 1,
                     run.outcome.loss(step), reference.outcome.loss(step),
                     first_difference(run, reference));
}

std::string about_bytes(std::int64_t bytes, std::int64_t expected, int ranks) {
  const std::string sent = fmt::format("{} ranks send {} bytes in a step, ", ranks, bytes);
  if (bytes > expected) {
    return sent + fmt::format(
                      "{} more than they need: does a unit travel that is there already, "
                      "or more of a tensor than its reader keeps, or is a copy of a slot changed "
                      "(Slot slot in place of Slot& slot)?",
                      bytes - expected);
  }
  return sent + fmt::format(
                    "{} fewer than they need: do the values and gradients of all units "
                    "travel, and to all that need them?",
                    expected - bytes);
}

/// The reference's needs.
struct Expected {
  std::int64_t bytes = 0, peak = 0;
  int waits = 0;
};

std::string about_overlap(int ranks, const MakeRung& make, int expected) try {
  const std::optional<int> exposed = exposed_waits(ranks, make);
  if (!exposed) {
    return fmt::format(
        "with {} ranks nothing runs on the communication stream: computation waits for every byte",
        ranks);
  }
  if (*exposed <= expected) return "";
  return fmt::format(
      "with {} ranks computation waits {} times in {} steps for communication that no unit's "
      "computation hides, {} times more "
      "than it needs: is a wait placed directly behind its call, or is the next unit called too "
      "late?",
      ranks, *exposed, kSteps, *exposed - expected);
} catch (const Error& error) {
  return error.what();
}

void grade_bytes_and_memory(course::Grader& grader, const std::map<int, Expected>& expected,
                            const std::map<int, Run>& runs) {
  std::string bytes, memory;
  for (const auto& [ranks, numbers] : expected) {
    const Run& run = runs.at(ranks);
    const auto& [sent, peak, waits] = numbers;
    if (!run.error.empty()) {
      bytes = memory = "no step ended; see the losses";
    } else {
      if (run.outcome.bytes_per_step != sent)
        bytes = about_bytes(run.outcome.bytes_per_step, sent, ranks);
      if (run.outcome.peak_bytes > peak) {
        memory = fmt::format(
            "with {} ranks a rank holds {} bytes, {} more than it needs: is a "
            "buffer whole that should be a part, or kept that should be shared?",
            ranks, run.outcome.peak_bytes, run.outcome.peak_bytes - peak);
      }
    }
  }
  grader.grade("bytes", bytes);
  grader.grade("memory", memory);
}

int grade(const MakeRung& make, const std::map<int, Expected>& expected, bool expert_parallel) {
  course::Grader grader;
  std::map<int, Run> references, runs;
  bool losses_right = true;
  for (const int ranks : {2, 4}) {
    references[ranks] = train(ranks, make_rung<Training>(), 0, expert_parallel);
    runs[ranks] = train(ranks, make);
    const bool same = runs[ranks].right(references[ranks]);
    losses_right &= same;
    grader.grade(fmt::format("losses on {} ranks", ranks),
                 same ? "" : about_losses(runs[ranks], references[ranks], train(ranks, make)));
  }
  grade_bytes_and_memory(grader, expected, runs);
  std::string overlap = losses_right ? "" : "not tried: the losses are wrong";
  for (const auto& [ranks, numbers] : expected) {
    if (overlap.empty()) overlap = about_overlap(ranks, make, numbers.waits);
  }
  grader.grade("overlap", overlap);
  std::string delays = losses_right ? "" : "not tried: without delays the losses are wrong already";
  for (int seed = 1; seed <= kSeeds && delays.empty(); ++seed) {
    const int ranks = seed % 2 == 0 ? 4 : 2;
    const Run run = train(ranks, make, seed);
    if (run.right(references.at(ranks))) continue;
    delays = fmt::format(
        "a wait is missing. With communication that is delayed at random (seed {}), {}", seed,
        run.error.empty() ? first_difference(run, references.at(ranks)) : run.error);
  }
  grader.grade("delayed communication", delays);
  return grader.status();
}

std::string about_cut_losses(const Run& run, const Run& reference) {
  if (!run.error.empty()) return run.error;
  const int step = first_wrong_step(run, reference);
  return fmt::format("the loss has wrong bits from step {} on, {:.7f} instead of {:.7f}: {}",
                     step + 1, run.outcome.loss(step), reference.outcome.loss(step),
                     step == 0
                         ? "forward reads other values than it needs, or a sum lacks a summand"
                         : "forward is right, and a gradient lacks a summand or is another's");
}

/// A rung that cuts layers, rows or the model.
int grade_cut(const MakeRung& make, bool is_dense, const std::map<int, Expected>& expected) {
  course::Grader grader;
  std::map<int, Run> runs;
  for (const int ranks : {2, 4}) {
    Run reference;
    reference.outcome = is_dense ? run(1, ranks, make_rung<DenseTraining>())
                                 : run(ranks, ranks, make_rung<Training>());
    runs[ranks] = train(ranks, make);
    grader.grade(fmt::format("losses on {} ranks", ranks),
                 runs[ranks].right(reference) ? "" : about_cut_losses(runs[ranks], reference));
  }
  grade_bytes_and_memory(grader, expected, runs);
  return grader.status();
}

}  // namespace

int climb(int argument_count, char** arguments, Ranks, const MakeRung& make) try {
  if (argument_count == 2 && std::strcmp(arguments[1], "--measure") == 0) {
    for (const int ranks : {2, 4}) {
      const Outcome outcome = run(ranks, ranks, make);
      fmt::print("{} {} {} {}\n", ranks, outcome.bytes_per_step, outcome.peak_bytes,
                 exposed_waits(ranks, make).value_or(0));
    }
    return 0;
  }
  check(argument_count == 9, "usage: {} --measure | RANKS BYTES PEAK WAITS RANKS BYTES PEAK WAITS",
        arguments[0]);
  const int assignment = std::atoi(std::filesystem::path(arguments[0]).filename().c_str());
  std::map<int, Expected> expected;
  for (int i = 1; i < argument_count; i += 4) {
    expected[std::atoi(arguments[i])] = {std::atoll(arguments[i + 1]), std::atoll(arguments[i + 2]),
                                         std::atoi(arguments[i + 3])};
  }
  constexpr int kExperts = 9, kTensor = 19, kPipeline = 21;
  if (assignment >= kTensor) return grade_cut(make, assignment < kPipeline, expected);
  return grade(make, expected, assignment == kExperts);
} catch (const Error& error) {
  fmt::print(stderr, "{}: {}\n", arguments[0], error.what());
  return 1;
}

}  // namespace tessera::ladder
