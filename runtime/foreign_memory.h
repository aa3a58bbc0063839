// Storages of memory that kernels of the device use and another owner frees.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/storage.h"

namespace tessera {

/// Memory that kernels of the context's device read and write. The storage keeps `owner` alive. It may be
/// charged to the current category, in the account of the context's allocator.
enum class Charged : bool { no = false, yes = true };
Storage borrow_on_device(std::byte* data, std::size_t bytes, std::shared_ptr<const void> owner,
                         Charged charged);

/// The device of such memory, by its owner; the CPU for any other owner.
Device device_of_foreign(const std::shared_ptr<const void>& owner);

}  // namespace tessera
