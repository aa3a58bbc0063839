#include "runtime/emulation/device/accesses.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "runtime/emulation/device/block.h"
#include "runtime/emulation/device/counted_addresses.h"

namespace tessera::emulation {
namespace {

constexpr std::uintptr_t kSector = 32, kPageSectors = 128;
constexpr unsigned kBanks = 32, kBankBytes = 4;

struct Range {
  std::uintptr_t begin = 0, end = 0;
};
constexpr std::size_t kMostRanges = 16;
std::array<Range, kMostRanges> global_memory;
std::atomic<std::size_t> global_ranges{0};
int unnoted = 0;  // only a running kernel changes it

bool is_global(std::uintptr_t address) {
  const std::size_t count = global_ranges.load(std::memory_order_acquire);
  return std::any_of(global_memory.begin(), global_memory.begin() + count,
                     [&](Range range) { return address >= range.begin && address < range.end; });
}

/// Turns that the lanes [first, last) need: a turn reads one word from each bank.
unsigned turns(const std::array<AccessLog::Access, 32>& of_lane, unsigned active, unsigned first,
               unsigned last) {
  std::array<std::array<std::uintptr_t, 64>, kBanks> words;
  std::array<unsigned, kBanks> used{};
  unsigned most = 0;
  for (unsigned lane = first; lane < last; ++lane) {
    if ((active >> lane & 1u) == 0) continue;
    const AccessLog::Access& access = of_lane[lane];
    const std::uintptr_t end = access.address + std::min<std::uintptr_t>(access.bytes, 16);
    for (std::uintptr_t word = access.address / kBankBytes; word * kBankBytes < end; ++word) {
      const std::size_t bank = word % kBanks;
      const auto known = words[bank].begin() + used[bank];
      if (used[bank] == 64 || std::find(words[bank].begin(), known, word) != known) continue;
      words[bank][used[bank]++] = word;
      most = std::max(most, used[bank]);
    }
  }
  return most;
}

/// Turns beyond those that the bytes need. Accesses of 8 bytes go in two halves of the warp, those of
/// 16 bytes in four quarters.
unsigned conflicts(const std::array<AccessLog::Access, 32>& of_lane, unsigned active) {
  const std::uint32_t bytes = of_lane[static_cast<std::size_t>(std::countr_zero(active))].bytes;
  const unsigned lanes = bytes <= 4 ? 32 : bytes <= 8 ? 16 : 8;
  unsigned extra = 0;
  for (unsigned first = 0; first < 32; first += lanes) {
    const unsigned needed = turns(of_lane, active, first, first + lanes);
    extra += needed > 0 ? needed - 1 : 0;
  }
  return extra;
}

}  // namespace

void add_global_memory(const void* begin, std::size_t bytes) {
  const std::size_t count = global_ranges.load();
  if (count == kMostRanges) return;
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  global_memory[count] = {address, address + bytes};
  global_ranges.store(count + 1, std::memory_order_release);
  global_addresses.set(count == 0 ? address : std::min(address, global_addresses.begin.load()),
                       std::max(address + bytes, global_addresses.end.load()));
}

// Only the thread that runs a kernel touches global or shared memory of the GPU. So the running block
// may be used once the address is known to lie there.
void note_access(const void* address, std::size_t bytes, bool is_write, const void* place) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const bool is_shared = block.shared().in_arena(address);
  if (!is_shared && !is_global(at)) return;
  if (unnoted > 0) return;
  const Thread& thread = block.thread();
  block.accesses().add(thread.number / kWarpSize, thread.number % kWarpSize,
                       {place, at, static_cast<std::uint32_t>(bytes), is_write, is_shared});
}

void begin_unnoted() {
  ++unnoted;
}
void end_unnoted() {
  --unnoted;
}

// The host's compiler may store the fields of a float4 one by one, where nvcc stores 16 bytes.
void AccessLog::add(unsigned warp, unsigned lane, const Access& access) {
  Lane& log = warps_[warp].lanes[lane];
  warps_[warp].empty = false;
  if (!log.empty()) {
    Access& last = log.back();
    const bool continues = last.place != access.place && last.is_write == access.is_write &&
                           last.address + last.bytes == access.address &&
                           last.address / 16 == access.address / 16;
    if (continues) {
      last.bytes += access.bytes;
      return;
    }
  }
  log.push_back(access);
}

void AccessLog::clear() {
  for (Warp& warp : warps_) {
    if (warp.empty) continue;
    for (Lane& lane : warp.lanes) lane.clear();
    warp.empty = true;
  }
}

void AccessLog::merge(unsigned number, Statistics& statistics) {
  Warp& warp = warps_[number];
  if (warp.empty) return;
  const Lane& longest =
      *std::max_element(warp.lanes.begin(), warp.lanes.end(),
                        [](const Lane& a, const Lane& b) { return a.size() < b.size(); });
  const auto same_place = [](const Access& a, const Access& b) { return a.place == b.place; };
  const bool in_step = std::all_of(warp.lanes.begin(), warp.lanes.end(), [&](const Lane& lane) {
    return std::equal(lane.begin(), lane.end(), longest.begin(), same_place);
  });
  in_step ? merge_in_step(warp, longest, statistics) : merge_by_place(warp, statistics);
  for (Lane& lane : warp.lanes) lane.clear();
  warp.empty = true;
}

// Every lane has gone the same way as the one with the most accesses, as far as it went.
void AccessLog::merge_in_step(const Warp& warp, const Lane& longest, Statistics& statistics) {
  for (std::size_t i = 0; i < longest.size(); ++i) {
    Instruction instruction;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if (i >= warp.lanes[lane].size()) continue;
      instruction.of_lane[lane] = warp.lanes[lane][i];
      instruction.active |= 1u << lane;
    }
    count(instruction, statistics);
  }
}

// They are counted in the order of the lane that comes to them last: a sector may be written by one and
// read by a later one.
void AccessLog::merge_by_place(const Warp& warp, Statistics& statistics) {
  std::map<std::pair<const void*, unsigned>, Instruction> instructions;  // by place and visit
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    std::map<const void*, unsigned> visits;
    for (std::size_t i = 0; i < warp.lanes[lane].size(); ++i) {
      const Access& access = warp.lanes[lane][i];
      Instruction& instruction = instructions[{access.place, visits[access.place]++}];
      instruction.of_lane[lane] = access;
      instruction.active |= 1u << lane;
      instruction.turn = std::max(instruction.turn, i);
    }
  }
  std::vector<const Instruction*> in_order;
  for (const auto& [key, instruction] : instructions) in_order.push_back(&instruction);
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const Instruction* a, const Instruction* b) { return a->turn < b->turn; });
  for (const Instruction* instruction : in_order) count(*instruction, statistics);
}

void AccessLog::count(const Instruction& instruction, Statistics& statistics) {
  const auto first = static_cast<std::size_t>(std::countr_zero(instruction.active));
  if (!instruction.of_lane[first].is_shared) return count_global(instruction, statistics);
  ++statistics.shared_accesses;
  statistics.bank_conflicts += conflicts(instruction.of_lane, instruction.active);
}

void AccessLog::count_global(const Instruction& instruction, Statistics& statistics) {
  sectors_.clear();
  bool is_write = false;
  std::uint64_t bytes = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((instruction.active >> lane & 1u) == 0) continue;
    const Access& access = instruction.of_lane[lane];
    is_write = access.is_write;
    bytes += access.bytes;
    const std::uintptr_t last = (access.address + access.bytes - 1) / kSector;
    for (std::uintptr_t sector = access.address / kSector; sector <= last; ++sector) {
      if (sectors_.empty() || sectors_.back() != sector) sectors_.push_back(sector);
    }
  }
  if (!std::is_sorted(sectors_.begin(), sectors_.end()))
    std::sort(sectors_.begin(), sectors_.end());
  sectors_.erase(std::unique(sectors_.begin(), sectors_.end()), sectors_.end());
  Traffic& traffic = is_write ? statistics.writes : statistics.reads;
  traffic.bytes += bytes;
  traffic.sectors += sectors_.size();
  for (const std::uintptr_t sector : sectors_) touch(sector, is_write);
}

void AccessLog::read_by_engine(const void* data, std::size_t bytes, Statistics& statistics) {
  const auto first = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = first / kSector, end = (first + bytes + kSector - 1) / kSector;
  statistics.reads.bytes += bytes;
  statistics.reads.sectors += end - begin;
  for (std::uintptr_t sector = begin; sector < end; ++sector) touch(sector, /*is_write=*/false);
}

void AccessLog::touch(std::uintptr_t sector, bool is_write) {
  const std::uintptr_t number = sector / kPageSectors;
  if (number != last_number_) {
    last_number_ = number;
    last_page_ = &pages_[number];
  }
  const std::size_t word = sector % kPageSectors / 64;
  const std::uint64_t bit = std::uint64_t{1} << sector % 64;
  if (is_write) {
    last_page_->written[word] |= bit;
  } else if ((last_page_->written[word] & bit) == 0) {
    last_page_->read[word] |= bit;
  }
}

void AccessLog::end_launch(Statistics& statistics) {
  for (const auto& [number, page] : pages_) {
    for (const std::uint64_t word : page.read) {
      statistics.reads.distinct += static_cast<std::uint64_t>(std::popcount(word));
    }
    for (const std::uint64_t word : page.written) {
      statistics.writes.distinct += static_cast<std::uint64_t>(std::popcount(word));
    }
  }
  pages_.clear();
  last_number_ = ~std::uintptr_t{0};
  last_page_ = nullptr;
}

}  // namespace tessera::emulation
