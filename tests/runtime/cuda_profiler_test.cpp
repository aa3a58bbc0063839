// Spans on a GPU measure the GPU's time, not the host's.
#include <catch2/catch.hpp>
#include <optional>
#include <thread>

#include "runtime/cuda/moment.h"
#include "runtime/profiler.h"
#include "runtime/tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

constexpr double kTick = 1e-3;  // in milliseconds: a GPU's clock of events counts half microseconds

/// Queues work of about a millisecond.
void work() {
  const Tensor a = Tensor::zeros({8 << 20}, DType::f32);
  a.clone();
}

double since_origin_us(const Profiler& profiler) {
  return std::chrono::duration<double, std::micro>(Profiler::Clock::now() - profiler.origin())
      .count();
}

}  // namespace

TEST_CASE("a span measures the GPU's work, not its queueing") {
  const test::Rank rank;
  const cuda::Moment before;
  std::optional<cuda::Moment> begin, end;
  {
    const Span span("work");
    begin.emplace();
    work();
    end.emplace();
  }
  const cuda::Moment after;
  const double total = context().profiler().total_ms("work");
  CHECK(total >= end->milliseconds_since(*begin) - kTick);
  CHECK(total <= after.milliseconds_since(before) + kTick);
  CHECK(context().profiler().total_ms("other") == 0.0);
}

TEST_CASE("a total on a GPU is a sum that can be reset") {
  const test::Rank rank;
  Profiler& profiler = context().profiler();
  double least = 0.0;
  const auto measure = [&] {
    const Span span("work");
    const cuda::Moment begin;
    work();
    const cuda::Moment end;
    least += end.milliseconds_since(begin);
  };
  for (int i = 0; i < 4; ++i) {
    measure();  // adds the earlier spans, which are done
    const double total = profiler.total_ms("work");
    REQUIRE(total >= least - kTick);
    REQUIRE(profiler.total_ms("work") == total);
  }
  profiler.reset_totals();
  REQUIRE(profiler.total_ms("work") == 0.0);
  profiler.set_tracing(true);
  measure();
  profiler.reset_totals();  // traced spans stay traced
  REQUIRE(profiler.total_ms("work") == 0.0);
  REQUIRE(profiler.records().size() == 1);
}

TEST_CASE("a stream's wait for another stream counts in the span around it") {
  const test::Rank rank;
  const Stream& side = context().side_stream("side");
  std::optional<cuda::Moment> begin, end;
  {
    const Span span("exposed");
    side.wait(current_stream().record());
    {
      const StreamGuard guard(side);
      begin.emplace();
      work();
      end.emplace();
    }
    current_stream().wait(side.record());
  }
  CHECK(context().profiler().total_ms("exposed") >= end->milliseconds_since(*begin) - kTick);
}

TEST_CASE("a trace of a GPU counts from the profiler's beginning, by the host's clock") {
  const test::Rank rank;
  const Profiler& profiler = context().profiler();
  context().profiler().set_tracing(true);
  const double begin = since_origin_us(profiler);
  {
    const Span outer("outer");
    const Span inner("inner");
    work();
  }
  current_stream().synchronize();
  const double end = since_origin_us(profiler);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double asked = since_origin_us(profiler);
  const auto records = profiler.records();
  const double slack = since_origin_us(profiler) - asked;  // the clocks were compared in between
  REQUIRE(records.size() == 2);
  const auto& inner = records[0];
  const auto& outer = records[1];
  CHECK(inner.name == "inner");
  CHECK(outer.track == "compute");
  CHECK(outer.begin_us >= begin - 1.0);
  CHECK(outer.begin_us + outer.duration_us <= end + slack + 1.0);
  CHECK(inner.begin_us >= outer.begin_us - slack - 1.0);
  CHECK(inner.duration_us <= outer.duration_us + 1.0);
  CHECK(inner.duration_us > 0.0);
}

}  // namespace tessera
