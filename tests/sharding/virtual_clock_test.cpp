// The virtual clock and the alpha-beta model, against sums done by hand.
#include "sharding/plan/virtual_clock.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/dry_gpu.h"
#include "runtime/error.h"
#include "sharding/comm/transfer.h"

namespace tessera {
namespace {

const std::string kCompute = "compute", kSide = "communication";

Work forward(double seconds) {
  return {.kind = Work::Kind::forward, .amount = seconds};
}
Work transfer(double seconds, int ranks = 2) {
  return {.kind = Work::Kind::transfer,
          .amount = seconds,
          .rounds = 1,
          .ranks = ranks,
          .ranks_on_node = ranks};
}

/// A machine that does one unit of everything per second.
MachineRates unit_machine(int cores) {
  return {.name = "unit",
          .cores = cores,
          .compute = {{.ranks = 1, .forward = 1.0, .backward = 1.0, .memory = 1.0}},
          .links = {{.ranks = 2, .bandwidth = 1.0}}};
}

/// Work of 2 s, a transfer of 3 s called before it, a wait for the transfer, and work of 1 s.
StreamLog overlapping() {
  StreamLog log;
  log.start();
  log.add_work(kSide, transfer(3.0));
  log.add_work(kCompute, forward(2.0));
  log.add_wait(kCompute, 0);
  log.add_span("exposed communication", kCompute, 2, 3);
  log.add_work(kCompute, forward(1.0));
  log.add_mark("done", kCompute);
  return log;
}

TEST_CASE("virtual clock: streams run side by side, and a wait lasts until its entry ends") {
  const Timeline timeline = run_clock(overlapping(), unit_machine(0), {.on_node = 2});
  CHECK(timeline.seconds == Approx(4.0));
  CHECK(timeline.exposed == Approx(1.0));
  CHECK(timeline.entries[2].begin == Approx(2.0));
  CHECK(timeline.entries[2].end == Approx(3.0));
  CHECK(timeline.chain.size() == 2);
  CHECK(timeline.chain.at("link of 2 ranks") == Approx(3.0));
  CHECK(timeline.chain.at("compute") == Approx(1.0));
  CHECK(timeline.limit() == "link of 2 ranks");
}

TEST_CASE("virtual clock: products in 8 bits have a rate of their own, or that of the dtype") {
  StreamLog log;
  log.start();
  log.add_work(kCompute, {.kind = Work::Kind::forward, .amount = 12.0, .in_8_bits = 8.0});
  log.add_work(kCompute, {.kind = Work::Kind::backward, .amount = 12.0, .in_8_bits = 6.0});
  MachineRates machine = unit_machine(0);
  CHECK(run_clock(log, machine, {}).seconds == Approx(24.0));
  machine.compute.push_back({.dtype = DType::e4m3, .forward = 2.0, .backward = 3.0, .memory = 1.0});
  const Timeline timeline = run_clock(log, machine, {});
  CHECK(timeline.entries[0].end == Approx(4.0 + 8.0 / 2.0));
  CHECK(timeline.seconds == Approx(8.0 + 6.0 + 6.0 / 3.0));
}

TEST_CASE("virtual clock: streams that share cores slow each other down") {
  // Both at half speed until the work is done at 4 s; the transfer's last second is alone.
  const Timeline timeline = run_clock(overlapping(), unit_machine(2), {.on_node = 2});
  CHECK(timeline.entries[1].end == Approx(4.0));
  CHECK(timeline.entries[0].end == Approx(5.0));
  CHECK(timeline.exposed == Approx(1.0));
  CHECK(timeline.seconds == Approx(6.0));
}

TEST_CASE("virtual clock: more ranks than cores share them, as their link's measurement did") {
  StreamLog log;
  log.start();
  log.add_work(kCompute, forward(2.0));
  log.add_work(kSide, transfer(3.0, 4));
  log.add_wait(kCompute, 1);
  MachineRates machine = unit_machine(2);
  machine.links.push_back({.ranks = 4, .bandwidth = 1.0});
  const Timeline timeline = run_clock(log, machine, {.on_node = 4});
  CHECK(timeline.entries[0].end == Approx(4.0));
  CHECK(timeline.seconds == Approx(7.0));
}

TEST_CASE("virtual clock: a host that shares cores makes its calls in turn, a GPU's runs ahead") {
  StreamLog log;
  log.start();
  log.add_work(kCompute, forward(2.0));
  log.add_work(kSide, transfer(3.0));
  const Timeline cpu = run_clock(log, unit_machine(4), {.on_node = 2});
  const Timeline gpu = run_clock(log, unit_machine(0), {.on_node = 2});
  CHECK(cpu.entries[1].begin == Approx(2.0));
  CHECK(cpu.seconds == Approx(5.0));
  CHECK(gpu.entries[1].begin == Approx(0.0));
  CHECK(gpu.seconds == Approx(3.0));
}

TEST_CASE("virtual clock: the host has a link of its own, and ranks share its memory") {
  StreamLog log;
  log.start();
  log.add_work(kSide, host_copy(6.0));
  log.add_work(kCompute, forward(2.0));
  log.add_wait(kCompute, 0);
  log.add_work(kCompute, host_memory_work(8.0));
  MachineRates machine = unit_machine(0);
  CHECK_THROWS_WITH(run_clock(log, machine, {}), Catch::Contains("no rates of the host's memory"));
  machine.host = HostRates{.link = {.latency = 0.5, .bandwidth = 2.0}, .memory = 4.0};
  const Timeline timeline = run_clock(log, machine, {.on_node = 2});
  CHECK(timeline.entries[0].end == Approx(3.5));
  CHECK(timeline.exposed == Approx(1.5));
  CHECK(timeline.seconds == Approx(3.5 + 8.0 * 2 / 4.0));
  CHECK(timeline.chain.at("link to the host") == Approx(3.5));
  CHECK(timeline.limit() == "host memory");
}

TEST_CASE("virtual clock: spans begin with their first entry and end with their last") {
  const StreamLog log = overlapping();
  const auto records = records_of(log, run_clock(log, unit_machine(0), {.on_node = 2}));
  REQUIRE(records.size() == 2);
  CHECK(records[0].begin_us == Approx(2e6));
  CHECK(records[0].duration_us == Approx(1e6));
  CHECK(records[1].instant);
  CHECK(records[1].begin_us == Approx(4e6));
}

TEST_CASE("a dry run's log has the work of streams and the waits for their points") {
  RankContext context({.threads = 1, .dry = true});
  const ContextGuard guard(context);
  StreamLog& log = *context.stream_log();
  const Stream& side = context.side_stream(kSide);
  log.start();
  side.enqueue([] { log_memory(4.0); });
  const Event before = side.record();
  log.start();
  side.enqueue([] { log_memory(8.0); });
  log_memory(16.0);
  const Event compute = context.compute_stream().record();
  side.wait(before);  // a point of the time before the log
  side.wait(compute);
  side.record().synchronize();
  log.stop();
  log_memory(32.0);
  const auto& entries = log.entries();
  REQUIRE(entries.size() == 5);
  CHECK((entries[0].stream == kSide && entries[0].work->amount == 8.0));
  CHECK((entries[1].stream == kCompute && entries[1].work->amount == 16.0));
  CHECK((entries[2].stream == kSide && !entries[2].work && entries[2].waits_for == -1));
  CHECK(entries[3].waits_for == 1);
  CHECK((entries[4].stream == kCompute && entries[4].waits_for == 3));
}

TEST_CASE("transfers: rounds and bytes of the busiest rank") {
  RankContext context({.threads = 1, .dry = true});
  const ContextGuard guard(context);
  const Tensor whole = Tensor::empty({40}, DType::f32);  // 160 bytes
  const auto work = [&](Collective collective) {
    return transfer_of({.collective = collective, .outputs = {whole}, .inputs = {whole}}, 1, 4, 2);
  };
  const auto expect = [&](Collective collective, int rounds, double bytes) {
    INFO(name_of(collective));
    CHECK(work(collective).rounds == rounds);
    CHECK(work(collective).amount == bytes);
  };
  expect(Collective::all_gather, 1, 120.0);
  expect(Collective::reduce_scatter, 1, 120.0);
  expect(Collective::all_reduce, 2, 240.0);
  expect(Collective::reduce, 2, 240.0);
  expect(Collective::broadcast, 1, 160.0);
  expect(Collective::all_to_all, 1, 120.0);
  expect(Collective::shift, 1, 0.0);  // to the rank itself
  expect(Collective::barrier, 1, 0.0);
  const Work shift = transfer_of(
      {.collective = Collective::shift, .outputs = {whole}, .inputs = {whole}, .root = 3}, 1, 4, 2);
  CHECK((shift.rounds == 1 && shift.amount == 160.0 && shift.to_one));
  CHECK_FALSE(work(Collective::all_to_all).to_one);
  CHECK(work(Collective::broadcast).from_root);
  CHECK_FALSE(work(Collective::reduce).from_root);
}

TEST_CASE("transfers: latency and bandwidth of the slower link") {
  MachineRates machine = unit_machine(0);
  machine.links = {{.ranks = 2, .latency = 0.5, .bandwidth = 10.0}};
  Work work{
      .kind = Work::Kind::transfer, .amount = 120.0, .rounds = 1, .ranks = 8, .ranks_on_node = 8};
  CHECK(transfer_seconds(machine, work) == Approx(0.5 + 12.0));
  machine.rings = true;
  CHECK(transfer_seconds(machine, work) == Approx(7 * 0.5 + 12.0));
  Work to_one = work;
  to_one.to_one = true;
  CHECK(transfer_seconds(machine, to_one) == Approx(0.5 + 12.0));
  work.ranks_on_node = 4;  // one rank of four has its neighbour on the other node
  CHECK_THROWS_WITH(transfer_seconds(machine, work), Catch::Contains("no network"));
  machine.network = Link{.latency = 1.0, .bandwidth = 2.0};
  CHECK(transfer_seconds(machine, work) == Approx(7 * 1.0 + 30.0 / 2.0));
  machine.rings = false;  // four of the seven others are on the other node
  CHECK(transfer_seconds(machine, work) == Approx(1.0 + 120.0 * 4 / 7 / 2.0));
}

TEST_CASE("transfers: the root of a broadcast sends to every rank, unless a ring passes it on") {
  MachineRates machine = unit_machine(0);
  machine.links = {{.ranks = 2, .bandwidth = 10.0}};
  Work work{.kind = Work::Kind::transfer,
            .amount = 120.0,
            .rounds = 1,
            .ranks = 8,
            .ranks_on_node = 8,
            .from_root = true};
  CHECK(transfer_seconds(machine, work) == Approx(7 * 12.0));
  machine.network = Link{.bandwidth = 2.0};
  work.ranks_on_node = 4;  // four ranks are on the other node
  CHECK(transfer_seconds(machine, work) == Approx(4 * 120.0 / 2.0));
  machine.rings = true;  // one rank of four passes it on to the other node
  CHECK(transfer_seconds(machine, work) == Approx(30.0 / 2.0));
  work.ranks_on_node = 8;
  CHECK(transfer_seconds(machine, work) == Approx(12.0));
  machine.rings = false;
  machine.cores = 8;  // the receivers copy
  CHECK(transfer_seconds(machine, work) == Approx(12.0));
}

TEST_CASE(
    "transfers: a switch that adds needs (N+1)/N of the bytes for an all-reduce, within a node") {
  MachineRates machine = unit_machine(0);
  machine.rings = machine.switch_adds = true;
  machine.links = {{.ranks = 2, .latency = 0.5, .bandwidth = 10.0}};
  Work work{.kind = Work::Kind::transfer, .amount = 2 * 7 / 8.0 * 160, .rounds = 2, .ranks = 8};
  work.ranks_on_node = 8;
  CHECK(transfer_seconds(machine, work) == Approx(2 * 7 * 0.5 + 28.0));  // no all-reduce
  work.all_reduces = true;
  CHECK(transfer_seconds(machine, work) == Approx(2 * 0.5 + 18.0));
  work.ranks_on_node = 4;  // through the network, in a ring
  machine.network = Link{.bandwidth = 2.0};
  CHECK(transfer_seconds(machine, work) == Approx(2 * 7 * 0.5 + 280.0 / 4 / 2.0));
  work = {.kind = Work::Kind::transfer,
          .amount = 160.0,
          .rounds = 2,
          .ranks = 2,
          .ranks_on_node = 2,
          .all_reduces = true};
  CHECK(transfer_seconds(machine, work) == Approx(2 * 0.5 + 16.0));  // two ranks gain nothing
}

TEST_CASE("transfers: no collective is faster than the bytes of its busiest rank over the link") {
  RankContext context({.threads = 1, .dry = true});
  const ContextGuard guard(context);
  MachineRates machine = unit_machine(0);
  machine.network = Link{.bandwidth = 0.25};
  for (const int ranks : {2, 3, 4, 8}) {
    const Tensor whole = Tensor::empty({24 * ranks}, DType::f32);
    for (const Collective collective :
         {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce,
          Collective::broadcast, Collective::reduce, Collective::all_to_all}) {
      const Call call{.collective = collective, .outputs = {whole}, .inputs = {whole}};
      std::int64_t most = 0;
      for (int rank = 0; rank < ranks; ++rank)
        most = std::max(most, bytes_sent_by(call, rank, ranks));
      for (const int on_node : {ranks, 1}) {
        INFO(name_of(collective) << " on " << ranks << " ranks, " << on_node << " on a node");
        const double rate = on_node == 1 ? 0.25 : 1.0;
        const Work work = transfer_of(call, 0, ranks, on_node);
        machine.rings = false;
        CHECK(transfer_seconds(machine, work) >= static_cast<double>(most) / rate * (1 - 1e-12));
        // In a ring a rank passes on what it has received: at least all that it lacks.
        machine.rings = true;
        CHECK(transfer_seconds(machine, work) >= work.amount / rate * (1 - 1e-12));
      }
    }
  }
}

TEST_CASE("a fit finds the latency and bandwidth that made the times") {
  std::vector<TimedTransfer> times;
  for (const double bytes : {1e3, 1e5, 1e7}) {
    for (const double rounds : {1.0, 2.0}) {
      times.push_back({rounds, bytes, rounds * 5e-6 + bytes / 8e9});
    }
  }
  const Link link = fit_link(4, times);
  CHECK(link.ranks == 4);
  CHECK(link.latency == Approx(5e-6));
  CHECK(link.bandwidth == Approx(8e9));
  CHECK_THROWS_WITH(fit_link(2, {times[0]}), Catch::Contains("several sizes"));
}

TEST_CASE("rates are those of the most ranks that are not more") {
  MachineRates machine = unit_machine(4);
  machine.compute = {{.ranks = 4, .forward = 4.0}, {.ranks = 1, .forward = 1.0}};
  CHECK(machine.compute_of(1, DType::f32).forward == 1.0);
  CHECK(machine.compute_of(3, DType::f32).forward == 1.0);
  CHECK(machine.compute_of(9, DType::f32).forward == 4.0);
  CHECK_THROWS_WITH(machine.compute_of(1, DType::bf16), Catch::Contains("no rates"));
}

}  // namespace
}  // namespace tessera
