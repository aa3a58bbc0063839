#include "runtime/profiler.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/file.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Adds a span of known times. `begin_us` counts from the profiler's origin.
void add(Profiler& profiler, const char* name, const char* track, int begin_us, int end_us) {
  profiler.add(name, track, {.host = profiler.origin() + microseconds(begin_us)},
               {.host = profiler.origin() + microseconds(end_us)});
}

Json trace_of(const std::vector<const Profiler*>& profilers) {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "trace.json";
  write_chrome_trace(path, profilers);
  return Json::parse(read_text_file(path)).at("traceEvents");
}

std::vector<Json> events_of(const Json& trace, const std::string& name) {
  std::vector<Json> events;
  for (const Json& event : trace) {
    if (event.at("name") == name) events.push_back(event);
  }
  return events;
}

}  // namespace

TEST_CASE("on the CPU a span adds its lifetime to its name's total") {
  RankContext rank({.threads = 1});
  const ContextGuard guard(rank);
  Profiler& profiler = context().profiler();
  REQUIRE(profiler.total_ms("forward") == 0.0);
  const auto begin = Profiler::Clock::now();
  for (int i = 0; i < 2; ++i) {
    const Span span("forward");
    std::this_thread::sleep_for(milliseconds(2));
  }
  const std::chrono::duration<double, std::milli> passed = Profiler::Clock::now() - begin;
  REQUIRE(profiler.total_ms("forward") >= 4.0);
  REQUIRE(profiler.total_ms("forward") <= passed.count());
  REQUIRE(profiler.total_ms("backward") == 0.0);
  profiler.reset_totals();
  REQUIRE(profiler.total_ms("forward") == 0.0);
}

TEST_CASE("totals sum the spans of a name over all tracks") {
  Profiler profiler(0);
  add(profiler, "gather", "compute", 0, 1500);
  add(profiler, "gather", "side", 1000, 1250);
  REQUIRE(profiler.total_ms("gather") == Approx(1.75));
}

TEST_CASE("records are kept only while tracing is on") {
  Profiler profiler(0);
  add(profiler, "before", "compute", 0, 1);
  profiler.set_tracing(true);
  add(profiler, "during", "compute", 10, 12);
  profiler.set_tracing(false);
  add(profiler, "after", "compute", 20, 21);
  const auto records = profiler.records();
  REQUIRE(records.size() == 1);
  REQUIRE(records[0].name == "during");
  REQUIRE(records[0].track == "compute");
  REQUIRE(records[0].begin_us == Approx(10.0));
  REQUIRE(records[0].duration_us == Approx(2.0));
}

TEST_CASE("a mark is an instant in a trace and adds to no total") {
  const test::Rank rank(1);
  Profiler& profiler = context().profiler();
  mark("before");
  profiler.set_tracing(true);
  mark("here");
  const Json trace = trace_of({&profiler});
  CHECK(events_of(trace, "before").empty());
  const Json event = events_of(trace, "here").at(0);
  CHECK(event.at("ph") == "i");
  CHECK_FALSE(event.contains("dur"));
  CHECK(profiler.total_ms("here") == 0.0);
}

TEST_CASE("a span for a trace is measured only while spans are kept") {
  const test::Rank rank(1);
  Profiler& profiler = context().profiler();
  CHECK_FALSE(profiler.keeps_spans());
  { const Span span("before", SpanUse::trace); }
  profiler.set_tracing(true);
  CHECK(profiler.keeps_spans());
  { const Span span("in between", SpanUse::trace); }
  profiler.set_tracing(false);
  { const Span span("after", SpanUse::trace); }
  REQUIRE(profiler.records().size() == 1);
  CHECK(profiler.records()[0].name == "in between");
  CHECK(profiler.total_ms("before") == 0.0);
  CHECK(profiler.total_ms("after") == 0.0);
}

TEST_CASE("a span belongs to the stream it runs on") {
  const test::Rank rank(1);
  context().profiler().set_tracing(true);
  const Stream& side = context().side_stream("communication");
  side.enqueue([] { const Span span("gather"); });
  side.synchronize();
  { const Span span("matmul"); }
  const auto records = context().profiler().records();
  REQUIRE(records.size() == 2);
  REQUIRE(records[0].track == "communication");
  REQUIRE(records[1].track == "compute");
}

TEST_CASE("a span without a context does nothing") {
  REQUIRE_NOTHROW(Span("nowhere"));
}

TEST_CASE("several threads may add spans at once") {
  Profiler profiler(0);
  profiler.set_tracing(true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) add(profiler, "work", "compute", i, i + 1);
    });
  }
  for (auto& thread : threads) thread.join();
  REQUIRE(profiler.records().size() == 400);
  REQUIRE(profiler.total_ms("work") == Approx(0.4));
}

TEST_CASE("a trace holds complete events with process, track, begin and duration") {
  Profiler profiler(3);
  profiler.set_tracing(true);
  add(profiler, "forward", "compute", 100, 350);
  add(profiler, "gather", "side", 150, 200);
  const Json trace = trace_of({&profiler});

  const auto forward = events_of(trace, "forward");
  REQUIRE(forward.size() == 1);
  REQUIRE(forward[0].at("ph") == "X");
  REQUIRE(forward[0].at("pid") == 3);
  REQUIRE(forward[0].at("ts").get<double>() == Approx(100.0));
  REQUIRE(forward[0].at("dur").get<double>() == Approx(250.0));
  const auto gather = events_of(trace, "gather");
  REQUIRE(gather.size() == 1);
  REQUIRE(gather[0].at("tid") != forward[0].at("tid"));
}

TEST_CASE("a trace names its processes after ranks and its threads after streams") {
  Profiler zero(0), one(1);
  for (Profiler* profiler : {&zero, &one}) {
    profiler->set_tracing(true);
    add(*profiler, "step", "compute", 0, 1);
    add(*profiler, "gather", "side", 0, 1);
  }
  const Json trace = trace_of({&zero, &one});
  const auto processes = events_of(trace, "process_name");
  REQUIRE(processes.size() == 2);
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(processes[rank].at("ph") == "M");
    REQUIRE(processes[rank].at("pid") == rank);
    REQUIRE(processes[rank].at("args").at("name") == "rank " + std::to_string(rank));
  }
  const auto threads = events_of(trace, "thread_name");
  REQUIRE(threads.size() == 4);
  for (const Json& thread : threads) {
    const std::string span = thread.at("args").at("name") == "compute" ? "step" : "gather";
    int matches = 0;
    for (const Json& event : events_of(trace, span)) {
      matches += event.at("pid") == thread.at("pid") && event.at("tid") == thread.at("tid");
    }
    REQUIRE(matches == 1);
  }
}

TEST_CASE("ranks made at different times share the trace's clock") {
  Profiler early(0);
  std::this_thread::sleep_for(milliseconds(3));  // at least
  Profiler late(1);
  const auto begin = Profiler::Clock::now();
  for (Profiler* profiler : {&late, &early}) {
    profiler->set_tracing(true);
    profiler->add("barrier", "compute", {.host = begin}, {.host = begin + microseconds(5)});
  }
  const auto barriers = events_of(trace_of({&late, &early}), "barrier");
  REQUIRE(barriers.size() == 2);
  const double ts = barriers[0].at("ts").get<double>();
  REQUIRE(ts >= 3000.0);
  REQUIRE(barriers[1].at("ts").get<double>() == Approx(ts).margin(0.01));
}

TEST_CASE("a trace is valid JSON with awkward names and without records") {
  REQUIRE(trace_of({}).empty());
  Profiler profiler(0);
  profiler.set_tracing(true);
  add(profiler, "quote\" back\\slash\n\xff", "compute", 0, 1);
  REQUIRE(trace_of({&profiler}).size() == 3);
  REQUIRE_THROWS_WITH(write_chrome_trace("/proc/none/trace.json", {&profiler}),
                      Catch::Contains("/proc/none/trace.json"));
}

}  // namespace tessera
