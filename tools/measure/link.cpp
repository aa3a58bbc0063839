#include "tools/measure/link.h"

#include <algorithm>

#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/transfer.h"
#include "tools/measure/median.h"

namespace tessera {

CollectiveOperands::CollectiveOperands(std::int64_t bytes, int ranks) {
  const std::int64_t count = bytes / 4 / ranks * ranks;
  whole = Tensor::full({count}, DType::f32, 1.0);
  other = Tensor::zeros({count}, DType::f32);
  part = Tensor::zeros({count / ranks}, DType::f32);
}

std::vector<TimedCollective> timed_collectives(Communicator& world, const CollectiveOperands& o,
                                               const Stream& stream) {
  return {
      {Collective::all_gather, [&] { return world.all_gather({o.whole}, stream); }},
      {Collective::reduce_scatter,
       [&] { return world.reduce_scatter({o.part}, {o.whole}, stream); }},
      {Collective::all_reduce, [&] { return world.all_reduce({o.other}, stream); }},
      {Collective::broadcast, [&] { return world.broadcast({o.whole}, 0, stream); }},
      {Collective::reduce, [&] { return world.reduce({o.other}, 0, stream); }},
      {Collective::all_to_all, [&] { return world.all_to_all({o.other}, {o.whole}, stream); }},
  };
}

double slowest_seconds(Communicator& world, int runs, const std::function<void()>& run) {
  const Stream& stream = context().compute_stream();
  world.barrier(stream).synchronize();
  const TimePoint begin = TimePoint::now();
  for (int i = 0; i < runs; ++i) run();
  const double ms = milliseconds_between(begin, TimePoint::now());
  const Tensor seconds = Tensor::from(std::vector{static_cast<float>(1e-3 * ms)}, {1});
  world.all_reduce({seconds}, stream, "slowest", Reduction::maximum);
  return static_cast<double>(seconds.item<float>()) / runs;
}

Link measure_link(Communicator& world) {
  constexpr int kRepetitions = 7;
  std::vector<TimedTransfer> transfers;
  for (const std::int64_t kib : {4, 64, 512, 2048}) {
    const CollectiveOperands operands(kib << 10, world.size());
    for (const TimedCollective& one : timed_collectives(world, operands, communication_stream())) {
      const auto run = [&] { one.run().synchronize(); };
      const int runs = static_cast<int>(std::clamp<std::int64_t>((1 << 12) / kib, 1, 50));
      slowest_seconds(world, 1, run);  // warm-up
      std::vector<double> seconds;
      for (int i = 0; i < kRepetitions; ++i) {
        seconds.push_back(slowest_seconds(world, runs, run));
      }
      const Call call = {
          .collective = one.collective, .outputs = {operands.whole}, .inputs = {operands.whole}};
      const Work work = transfer_of(call, world.rank(), world.size(), world.size());
      transfers.push_back({static_cast<double>(work.rounds), work.amount, median(seconds)});
    }
  }
  return fit_link(world.size(), transfers);
}

}  // namespace tessera
