#include <mutex>
#include <utility>

#include "runtime/emulation/device/emulator.h"

namespace tessera::emulation {

const std::vector<Counter>& counters() {
  static const std::vector<Counter> all = {
      {"blocks", [](Statistics& s) -> std::uint64_t& { return s.blocks; }},
      {"barriers", [](Statistics& s) -> std::uint64_t& { return s.barriers; }},
      {"collectives", [](Statistics& s) -> std::uint64_t& { return s.collectives; }},
      {"switches", [](Statistics& s) -> std::uint64_t& { return s.switches; }},
      {"atomics", [](Statistics& s) -> std::uint64_t& { return s.atomics; }},
      {"matrix_loads", [](Statistics& s) -> std::uint64_t& { return s.matrix_loads; }},
      {"matrix_products", [](Statistics& s) -> std::uint64_t& { return s.matrix_products; }},
      {"warpgroup_products", [](Statistics& s) -> std::uint64_t& { return s.warpgroup_products; }},
      {"matrix_flops", [](Statistics& s) -> std::uint64_t& { return s.matrix_flops; }},
      {"async_copy_bytes", [](Statistics& s) -> std::uint64_t& { return s.async_copy_bytes; }},
      {"tile_copies", [](Statistics& s) -> std::uint64_t& { return s.tile_copies; }},
      {"bulk_copy_bytes", [](Statistics& s) -> std::uint64_t& { return s.bulk_copy_bytes; }},
      {"bank_conflicts", [](Statistics& s) -> std::uint64_t& { return s.bank_conflicts; }},
      {"reads.bytes", [](Statistics& s) -> std::uint64_t& { return s.reads.bytes; }},
      {"reads.sectors", [](Statistics& s) -> std::uint64_t& { return s.reads.sectors; }},
      {"reads.distinct", [](Statistics& s) -> std::uint64_t& { return s.reads.distinct; }},
      {"writes.bytes", [](Statistics& s) -> std::uint64_t& { return s.writes.bytes; }},
      {"writes.sectors", [](Statistics& s) -> std::uint64_t& { return s.writes.sectors; }},
      {"writes.distinct", [](Statistics& s) -> std::uint64_t& { return s.writes.distinct; }},
      {"shared_accesses", [](Statistics& s) -> std::uint64_t& { return s.shared_accesses; }},
  };
  return all;
}

namespace {

std::mutex mutex;  // guards the list
bool is_listing = false;
std::vector<LaunchRecord> list;

}  // namespace

void start_launch_list() {
  const std::lock_guard lock(mutex);
  list.clear();
  is_listing = true;
}

bool lists_launches() {
  const std::lock_guard lock(mutex);
  return is_listing;
}

std::vector<LaunchRecord> take_launch_list() {
  const std::lock_guard lock(mutex);
  is_listing = false;
  return std::exchange(list, {});
}

void list_launch(LaunchRecord record) {
  const std::lock_guard lock(mutex);
  if (is_listing) list.push_back(std::move(record));
}

}  // namespace tessera::emulation
