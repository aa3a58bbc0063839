#include "sharding/comm/pin.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cores.h"
#include "sharding/comm/stream.h"

namespace tessera {
namespace {

/// The wishes of all ranks. They travel as the number of threads and then the allowed cores, with
/// -1 behind the last one.
std::vector<CoreWish> gather_wishes(Communicator& world) {
  constexpr std::int64_t kNumbers = 1 + kMostCores;
  std::vector<std::int64_t> own(kNumbers, -1);
  own[0] = context().threads().size();
  const std::vector<int> allowed = allowed_cores();
  std::copy(allowed.begin(), allowed.end(), own.begin() + 1);
  const StreamGuard on_this_stream(communication_stream());
  const Tensor all = Tensor::zeros({world.size() * kNumbers}, DType::i64);
  const auto part = [&](int rank) { return all.slice(rank * kNumbers, (rank + 1) * kNumbers); };
  part(world.rank()).copy_from(Tensor::from(own, {kNumbers}));
  world.all_gather({all}, communication_stream(), "cores").synchronize();
  std::vector<CoreWish> wishes;
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::vector<std::int64_t> numbers = part(rank).to_vector<std::int64_t>();
    wishes.push_back(
        {.allowed = {numbers.begin() + 1, std::find(numbers.begin(), numbers.end(), -1)},
         .threads = static_cast<int>(numbers[0])});
  }
  return wishes;
}

}  // namespace

std::vector<int> share_out_cores(const std::vector<CoreWish>& ranks, int rank) {
  std::vector<int> taken, cores;
  for (int r = 0; r <= rank; ++r) {
    const CoreWish& wish = ranks[static_cast<std::size_t>(r)];
    cores.clear();
    for (const int core : wish.allowed) {
      const bool enough = static_cast<int>(cores.size()) == wish.threads;
      const bool is_free = std::find(taken.begin(), taken.end(), core) == taken.end();
      if (is_free && !enough) cores.push_back(core);
    }
    taken.insert(taken.end(), cores.begin(), cores.end());
  }
  const CoreWish& wish = ranks[static_cast<std::size_t>(rank)];
  check(static_cast<int>(cores.size()) == wish.threads,
        "runtime.pin: {} thread{} for {} free core{} of {}; take fewer ranks or threads, or set "
        "runtime.pin=false",
        wish.threads, wish.threads == 1 ? "" : "s", cores.size(), cores.size() == 1 ? "" : "s",
        wish.allowed.size());
  return cores;
}

int bind_workers_of_rank(Communicator& world) {
  check(context().device().is_cpu(),
        "runtime.pin is for ranks on the CPU, and this one has device {}; set runtime.pin=false",
        to_string(context().device()));
  const std::vector<CoreWish> wishes = gather_wishes(world);
  std::vector<CoreWish> here;  // up to this rank
  for (int r = 0; r <= world.rank(); ++r) {
    if (world.node_of(r) == world.node_of(world.rank())) {
      here.push_back(wishes[static_cast<std::size_t>(r)]);
    }
  }
  const std::vector<int> cores = share_out_cores(here, static_cast<int>(here.size()) - 1);
  context().threads().bind_workers(cores);
  return cores.front();
}

void run_pinned(bool pin, Communicator& world, const std::function<void(Communicator&)>& body) {
  if (!pin) return body(world);
  const BoundThread bound(bind_workers_of_rank(world));
  body(world);
}

}  // namespace tessera
