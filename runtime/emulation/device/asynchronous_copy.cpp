#include "runtime/emulation/device/asynchronous_copy.h"

#include "runtime/emulation/device/block.h"
#include "runtime/emulation/device/sanitizers.h"
#include "runtime/emulation/device/warpgroup.h"

namespace tessera::emulation {

void PendingCopies::clear() {
  copies_.clear();
  ends_.clear();
  made_ = 0;
}

void PendingCopies::add(const Copy& copy) {
  const Unobserved unobserved;
  copies_.push_back(copy);
}

void PendingCopies::commit() {
  const Unobserved unobserved;
  ends_.push_back(copies_.size());
}

bool PendingCopies::take(unsigned groups, Copy& copy) {
  std::size_t due = ends_.size() > groups ? ends_.size() - groups : 0;  // groups to be complete
  const std::size_t end = due > 0 ? ends_[due - 1] : 0;
  if (made_ < end) {
    copy = copies_[made_++];
    return true;
  }
  copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(end));
  ends_.erase(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(due));
  for (std::size_t& group_end : ends_) group_end -= end;
  made_ -= end;
  return false;
}

void begin_copy(const Copy& copy, const Site& site) {
  const auto misaligned = [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 != 0;
  };
  if (misaligned(copy.shared)) block.fail("cp.async to an address not aligned to 16 bytes", site);
  if (misaligned(copy.global)) block.fail("cp.async from an address not aligned to 16 bytes", site);
  if (!block.shared().contains(copy.shared, 16)) {
    block.fail("cp.async to an address outside shared memory", site);
  }
  if (copy.bytes > 16) block.fail("cp.async of more than 16 bytes", site);
  if (warpgroups_read(copy.shared, 16)) {
    block.fail("cp.async to shared memory that a wgmma in flight still reads", site);
  }
  block.shared().note_copy(copy.shared, SharedMemory::Copied::in_flight);
  block.thread().copies.add(copy);
  block.statistics.async_copy_bytes += copy.bytes;
  if (!accesses_are_counted) return;
  const void* const place = __builtin_return_address(0);
  if (copy.bytes > 0) note_access(copy.global, copy.bytes, /*is_write=*/false, place);
  // The place of the writes is another instruction's than that of the reads.
  note_access(copy.shared, 16, /*is_write=*/true, static_cast<const char*>(place) + 1);
}

void commit_copies() {
  block.thread().copies.commit();
}

bool take_copy(unsigned groups, Copy& copy) {
  if (!block.thread().copies.take(groups, copy)) return false;
  block.shared().note_copy(copy.shared, SharedMemory::Copied::unfenced);
  note_write_for_engines(copy.shared, 16);
  return true;
}

}  // namespace tessera::emulation
