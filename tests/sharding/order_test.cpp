// The order in which work is issued, and which work computation waits for. Overlap rests on both.
//
// Times are not looked at. (The end of a pass shows in a span, and on a GPU a span says when the
// GPU computed: tests that ask for it are about the CPU.)
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <set>

#include "sharding/comm/stream.h"
#include "tests/sharding/ranks.h"
#include "tests/sharding/toy_net.h"
#include "tests/support/device.h"
#include "tests/support/waiting.h"

namespace tessera {

using test::ToyNet;
using test::ToyTraining;
using Log = std::vector<std::string>;

namespace {

/// The marks of rank 0's compute stream in the first step, and the ends of passes as "forward x
/// ends". The log begins with the gathers that the new strategy queues; or, with `update`, with a
/// write of the masters before the step. `frozen` layers, the first ones, and the ends are not
/// trained.
Log log_of(const ShardingOptions& options, int layers, bool checkpointing, int ranks = 2,
           bool update = false, int frozen = 0) {
  Log log;
  test::on_ranks(ranks, [&](Communicator& world) {
    ToyNet net(layers, checkpointing);
    for (int i = 0; frozen > 0 && i <= frozen; ++i) {
      for (const Parameter& parameter : net.units[i]->parameters()) parameter.set_trainable(false);
    }
    Profiler& profiler = context().profiler();
    profiler.set_tracing(!update);
    const auto strategy = make_strategy(net.units, options, 3, &world);
    profiler.set_tracing(true);
    const ToyTraining training;
    if (update) {
      strategy->write_masters([] { mark("masters written"); });
      mark("next step");
    }
    training.differentiate(net, *strategy, world, options.micro_batches, 0);
    if (world.rank() != 0) return;
    std::vector<std::pair<double, std::string>> events;
    for (const Profiler::Record& record : profiler.records()) {
      if (record.track != context().compute_stream().name()) continue;
      const bool pass = record.name.starts_with("forward ") || record.name.starts_with("backward ");
      if (record.instant) events.emplace_back(record.begin_us, record.name);
      if (pass) events.emplace_back(record.begin_us + record.duration_us, record.name + " ends");
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [time, name] : events) log.push_back(name);
  });
  return log;
}

std::size_t position(const Log& log, const std::string& event, std::size_t from = 0) {
  const auto found = std::find(log.begin() + static_cast<std::ptrdiff_t>(from), log.end(), event);
  INFO(event);
  REQUIRE(found != log.end());
  return static_cast<std::size_t>(found - log.begin());
}

std::size_t count(const Log& log, const std::string& prefix) {
  return static_cast<std::size_t>(std::count_if(
      log.begin(), log.end(), [&](const std::string& e) { return e.starts_with(prefix); }));
}

/// How many different inner buckets are gathered, from the issue of the gather to the last close
/// before another takes the place: never more than the slots.
std::size_t most_live_gathers(const Log& log) {
  std::set<std::string> live;
  std::size_t most = 0;
  for (const std::string& event : log) {
    if (event.starts_with("gather layer")) live.insert(event.substr(7));
    if (event.starts_with("close layer")) live.erase(event.substr(6));
    most = std::max(most, live.size());
  }
  return most;
}

/// Holds back the communication stream. A wait for work behind a closed gate is in vain; after the
/// safety limit the gate opens and remembers it.
class Gate {
 public:
  void close() { set(false); }
  void open() { set(true); }

  /// Called before each piece of the stream's work.
  void pass() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, test::kSafetyLimit, [&] { return open_; })) {
      waited_in_vain_ = true;
      open_ = true;
    }
  }
  bool waited_in_vain() {
    const std::lock_guard lock(mutex_);
    return waited_in_vain_;
  }

 private:
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  bool waited_in_vain_ = false;
};

/// Hooks that close the gate before the reduction of one unit is queued, and open it when the next
/// unit has begun its backward pass.
struct GatedHooks final : UnitHooks {
  GatedHooks(UnitHooks& strategy, Gate& gate, std::string reduced, std::string next)
      : strategy(strategy), gate(gate), reduced(std::move(reduced)), next(std::move(next)) {}

  void before_forward(Unit& unit) override { strategy.before_forward(unit); }
  void after_forward(Unit& unit) override { strategy.after_forward(unit); }
  void before_backward(Unit& unit) override {
    strategy.before_backward(unit);
    if (unit.name() != next) return;
    began_without_waiting = !gate.waited_in_vain();
    gate.open();
  }
  void after_backward(Unit& unit) override {
    if (unit.name() == reduced) gate.close();
    strategy.after_backward(unit);
  }

  UnitHooks& strategy;
  Gate& gate;
  const std::string reduced, next;
  bool began_without_waiting = false;
};

/// Does a unit's backward pass begin while the gradients of the unit before it are on their way?
bool overlaps_reduction(const ShardingOptions& options) {
  bool overlaps = false;
  test::on_ranks(1, [&](Communicator& world) {
    ToyNet net(4);
    const auto strategy = make_strategy(net.units, options, 3, &world);
    Gate gate;
    GatedHooks hooks(*strategy, gate, "layer.3", "layer.2");
    for (const auto& unit : net.units) unit->attach(&hooks);
    context().side_stream("communication").set_delay([&] { gate.pass(); });
    ToyTraining().differentiate(net, *strategy, world, 1, 0);
    context().side_stream("communication").synchronize();
    context().side_stream("communication").set_delay({});
    overlaps = hooks.began_without_waiting;
  });
  return overlaps;
}

}  // namespace

TEST_CASE("order: the whole story of an fsdp step", "[cpu]") {
  const Log story = {
      // The weights have just changed: no slot holds a bucket. Two gathers are queued at once.
      "gather ends", "gather layer.0",  //
      "open ends", "close ends", "forward ends ends", "open layer.0", "gather layer.1",
      "close layer.0", "forward layer.0 ends", "open layer.1", "gather layer.2", "close layer.1",
      "forward layer.1 ends", "open layer.2", "close layer.2", "forward layer.2 ends",
      // The head. Its slot still holds it, and those of the last two layers hold them.
      "open ends", "open gradients ends", "close ends", "forward ends ends", "open ends",
      "backward ends ends", "open layer.2", "open gradients layer.2", "backward layer.2 ends",
      "close layer.2", "reduce layer.2", "open layer.1", "open gradients layer.1", "gather layer.0",
      "backward layer.1 ends", "close layer.1", "reduce layer.1", "open layer.0",
      "open gradients layer.0", "backward layer.0 ends", "close layer.0", "reduce layer.0",
      // Tied weights are complete when the embedding has been through backward, too.
      "backward ends ends", "close ends", "reduce ends"};
  CHECK(log_of({.strategy = StrategyKind::fsdp}, 3, /*checkpointing=*/false) == story);
}

TEST_CASE("order: recomputation gathers nothing and changes nothing", "[cpu]") {
  for (const auto kind : {StrategyKind::zero3, StrategyKind::fsdp, StrategyKind::hsdp}) {
    const ShardingOptions options = {.strategy = kind};
    CHECK(log_of(options, 5, true) == log_of(options, 5, false));
  }
}

TEST_CASE("order: what comes next is gathered before computation ends", "[cpu]") {
  const Log log = log_of({.strategy = StrategyKind::fsdp}, 6, false);
  for (int i = 0; i < 5; ++i) {
    const std::string here = "layer." + std::to_string(i);
    const std::string next = "layer." + std::to_string(i + 1);
    CHECK(position(log, "gather " + next) < position(log, "forward " + here + " ends"));
  }
  const std::size_t way_back = position(log, "backward ends ends");
  for (int i = 3; i > 0; --i) {  // layers 5 and 4 are still held
    const std::string here = "layer." + std::to_string(i);
    const std::string next = "layer." + std::to_string(i - 1);
    CHECK(position(log, "gather " + next, way_back) <
          position(log, "backward " + here + " ends", way_back));
  }
}

TEST_CASE("order: backward goes on while gradients are reduced", "[cpu]") {
  // The next unit's weights are in their slot, and its gradients have a buffer that is free. So it
  // must wait for no communication at all.
  for (const auto kind : test::kSeveralRanks) {
    INFO(name_of(kind));
    CHECK(overlaps_reduction({.strategy = kind}));
  }
}

TEST_CASE("order: no more is gathered at a time than allowed") {
  for (const int live_gathers : {1, 2, 3}) {
    const Log log =
        log_of({.strategy = StrategyKind::fsdp, .live_gathers = live_gathers}, 7, false);
    CHECK(most_live_gathers(log) == static_cast<std::size_t>(live_gathers));
  }
}

TEST_CASE("order: backward gathers no bucket below the lowest trained one", "[cpu]") {
  for (const int live_gathers : {2, 3}) {
    const Log log = log_of({.strategy = StrategyKind::fsdp, .live_gathers = live_gathers}, 6, false,
                           /*ranks=*/2, /*update=*/false, /*frozen=*/2);
    for (const int layer : {0, 1}) {
      CHECK(count(log, "gather layer." + std::to_string(layer)) == 1);  // in forward
    }
    CHECK(count(log, "gather layer.2") == 2);
  }
}

TEST_CASE("order: weights are resharded before their gradients are reduced") {
  for (const auto kind : {StrategyKind::zero3, StrategyKind::fsdp, StrategyKind::hsdp}) {
    Log log = log_of({.strategy = kind}, 5, false);
    // On a GPU the pass may end after both.
    std::erase_if(log, [](const std::string& event) { return event.starts_with("backward "); });
    CHECK(count(log, "reduce ") == 6);
    for (std::size_t i = 1; i < log.size(); ++i) {
      if (log[i].starts_with("reduce ")) CHECK(log[i - 1] == "close " + log[i].substr(7));
    }
  }
}

TEST_CASE("order: an update gathers the first buckets of the next step", "[cpu]") {
  for (const int live_gathers : {2, 3}) {
    const ShardingOptions options = {.strategy = StrategyKind::fsdp, .live_gathers = live_gathers};
    const Log log = log_of(options, 5, false, /*ranks=*/2, /*update=*/true);
    Log expected = {"masters written", "gather ends"};
    for (int i = 0; i + 1 < live_gathers; ++i) {
      expected.push_back("gather layer." + std::to_string(i));
    }
    expected.push_back("next step");
    expected.push_back("open ends");
    REQUIRE(log.size() > expected.size());
    CHECK(Log(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(expected.size())) == expected);
    // The step has as many gathers as one without an update before it.
    CHECK(count(log, "gather ") == count(log_of(options, 5, false), "gather "));
  }
}

TEST_CASE("order: without prefetching, gathers come when they are needed", "[cpu]") {
  const Log log = log_of(
      {.strategy = StrategyKind::fsdp, .prefetch_in_forward = false, .prefetch_in_backward = false},
      5, false);
  for (std::size_t i = 0; i + 1 < log.size(); ++i) {
    if (log[i].starts_with("gather ")) CHECK(log[i + 1] == "open " + log[i].substr(7));
  }
}

TEST_CASE("order: collectives per step are what accumulation asks for") {
  const auto counts = [](bool every, int reshard_group) {
    const Log log = log_of({.strategy = StrategyKind::fsdp,
                            .reshard_group = reshard_group,
                            .micro_batches = 3,
                            .reduce_every_micro_batch = every},
                           4, false);
    return std::pair(count(log, "gather "), count(log, "reduce "));
  };
  // 4 layers share 2 slots: each pass after the first finds 2 of them still gathered.
  CHECK(counts(true, 0) == std::pair<std::size_t, std::size_t>(5 + 2 + 2 * (2 + 2), 3 * 5));
  CHECK(counts(false, 0) == std::pair<std::size_t, std::size_t>(5 + 2 + 2 * (2 + 2), 5));
  CHECK(counts(true, 1) == std::pair<std::size_t, std::size_t>(5, 3 * 5));
}

TEST_CASE("order: ddp and zero2 reduce in reverse order, as backward goes") {
  for (const auto kind : {StrategyKind::ddp, StrategyKind::zero1, StrategyKind::zero2}) {
    Log reductions;
    for (const std::string& event : log_of({.strategy = kind}, 3, false)) {
      if (event.starts_with("reduce ")) reductions.push_back(event);
    }
    CHECK(reductions == Log{"reduce layer.2", "reduce layer.1", "reduce layer.0", "reduce ends"});
  }
}

}  // namespace tessera
