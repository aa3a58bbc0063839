#include "sharding/plan/machine_rates.h"

#include <algorithm>

#include "runtime/check.h"
#include "sharding/plan/crossing.h"

namespace tessera {
namespace {

/// The entry with the most ranks that are not more than `ranks`; without any, that with the fewest.
template <typename Entry>
const Entry* entry_for(const std::vector<const Entry*>& entries, int ranks) {
  const Entry* best = nullptr;
  for (const Entry* const entry : entries) {
    if (best == nullptr) {
      best = entry;
    } else if (entry->ranks <= ranks ? best->ranks > ranks || entry->ranks > best->ranks
                                     : best->ranks > ranks && entry->ranks < best->ranks) {
      best = entry;
    }
  }
  return best;
}

}  // namespace

const ComputeRates& MachineRates::compute_of(int ranks, DType dtype) const {
  std::vector<const ComputeRates*> of_dtype;
  for (const ComputeRates& rates : compute) {
    if (rates.dtype == dtype) of_dtype.push_back(&rates);
  }
  const ComputeRates* const found = entry_for(of_dtype, ranks);
  check(found != nullptr,
        "machine '{}' has no rates for computation in {}; measure them with bench_step --fit", name,
        name_of(dtype));
  return *found;
}

const ComputeRates& MachineRates::compute_in_8_bits(int ranks, DType dtype) const {
  const bool has = std::any_of(compute.begin(), compute.end(), [](const ComputeRates& rates) {
    return rates.dtype == DType::e4m3;
  });
  return compute_of(ranks, has ? DType::e4m3 : dtype);
}

const Link& MachineRates::link_of(int ranks) const {
  std::vector<const Link*> all;
  for (const Link& link : links) all.push_back(&link);
  const Link* const found = entry_for(all, ranks);
  check(found != nullptr, "machine '{}' has no links; measure them with bench_collectives --fit",
        name);
  return *found;
}

double host_seconds(const MachineRates& machine, const Work& work, int ranks_on_node) {
  check(machine.host.has_value(), "machine '{}' has no rates of the host's memory, for offloading",
        machine.name);
  const HostRates& host = *machine.host;
  if (work.kind == Work::Kind::memory) return work.amount * ranks_on_node / host.memory;
  return host.link.latency + work.amount / host.link.bandwidth;
}

double transfer_seconds(const MachineRates& machine, const Work& work) {
  if (work.ranks == 1) return 0.0;
  const bool leaves = work.ranks_on_node < work.ranks;
  if (machine.switch_adds && work.all_reduces && !leaves && work.ranks > 2) {
    const double through_switch = work.amount * (work.ranks + 1) / (2.0 * (work.ranks - 1));
    const Link& link = machine.link_of(work.ranks);
    return work.rounds * link.latency + through_switch / link.bandwidth;
  }
  const int messages = machine.rings && !work.to_one ? work.rounds * (work.ranks - 1) : work.rounds;
  const double sent =
      work.from_root && !machine.rings ? work.amount * (work.ranks - 1) : work.amount;
  double latency = 0.0, seconds = 0.0;
  if (work.ranks_on_node > 1) {
    const Link& link = machine.link_of(work.ranks);
    latency = link.latency;
    // Ranks that share cores read the root's memory, all at the same time.
    seconds = (machine.cores > 0 ? work.amount : sent) / link.bandwidth;
  }
  if (leaves) {
    check(machine.network.has_value(),
          "machine '{}' has no network, and {} ranks lie on nodes of {}", machine.name, work.ranks,
          work.ranks_on_node);
    const Crossing crossing =
        crossing_of({.ranks = work.ranks, .adds = work.adds, .bytes = sent}, work.ranks_on_node);
    const double bytes = machine.rings ? crossing.rings : crossing.direct;
    latency = std::max(latency, machine.network->latency);
    seconds = std::max(seconds, bytes / machine.network->bandwidth);
  }
  return messages * latency + seconds;
}

Link fit_link(int ranks, const std::vector<TimedTransfer>& transfers) {
  // The unknowns are the latency and the seconds per byte. Each equation is divided by its time.
  double aa = 0.0, ab = 0.0, bb = 0.0, a1 = 0.0, b1 = 0.0;
  for (const TimedTransfer& t : transfers) {
    const double a = t.rounds / t.seconds, b = t.bytes / t.seconds;
    aa += a * a;
    ab += a * b;
    bb += b * b;
    a1 += a;
    b1 += b;
  }
  const double determinant = aa * bb - ab * ab;
  check(transfers.size() >= 2 && determinant > 1e-12 * aa * bb,
        "a latency and a bandwidth need transfers of several sizes");
  const double latency = (a1 * bb - b1 * ab) / determinant;
  if (latency < 0.0) return {.ranks = ranks, .latency = 0.0, .bandwidth = bb / b1};
  const double per_byte = (b1 * aa - a1 * ab) / determinant;
  check(per_byte > 0.0, "larger transfers took no longer: no bandwidth fits them");
  return {.ranks = ranks, .latency = latency, .bandwidth = 1.0 / per_byte};
}

}  // namespace tessera
