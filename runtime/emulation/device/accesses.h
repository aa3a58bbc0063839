// The accesses of a kernel to memory, put together to instructions of warps.
//
// A kernel with counted accesses is compiled with a call before every load and store
// (../counting/hooks.cpp). A lane's accesses go to its log. Where all lanes of a warp have come to
// one place, the logs are merged: the n-th access of each lane at one place of the program is one
// instruction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/emulation/device/emulator.h"

namespace tessera::emulation {

/// Whether the program has kernels with counted accesses.
inline bool accesses_are_counted = false;

/// The addresses [begin, begin + bytes) are global memory.
void add_global_memory(const void* begin, std::size_t bytes);

/// The running thread is about to access memory at `place` of the program. Addresses outside of
/// global and shared memory are skipped: a stack, a kernel's parameters, constants.
void note_access(const void* address, std::size_t bytes, bool is_write, const void* place);

void begin_unnoted();
void end_unnoted();
/// Kernels' accesses are not noted in the scope. The emulator's own code that is compiled with a
/// kernel counts its accesses by itself.
struct Unnoted {
#if defined(TESSERA_COUNTED_ACCESSES)
  Unnoted() {
    begin_unnoted();
  }
  ~Unnoted() {
    end_unnoted();
  }
#else
  Unnoted() {}
#endif
  Unnoted(const Unnoted&) = delete;
  Unnoted& operator=(const Unnoted&) = delete;
};

class AccessLog {
 public:
  struct Access {
    const void* place;  // in the program
    std::uintptr_t address;
    std::uint32_t bytes;
    bool is_write, is_shared;
  };

  /// Neighbouring accesses at different places, within 16 aligned bytes, become one.
  void add(unsigned warp, unsigned lane, const Access& access);
  /// All lanes of the warp have come to one place. Adds their accesses to `statistics`.
  void merge(unsigned warp, Statistics& statistics);
  /// The copy engine reads global memory.
  void read_by_engine(const void* data, std::size_t bytes, Statistics& statistics);
  /// Adds the distinct sectors of the launch to `statistics`.
  void end_launch(Statistics& statistics);
  /// Forgets accesses that were not merged.
  void clear();

 private:
  static constexpr unsigned kLanes = 32, kWarps = 64;
  using Lane = std::vector<Access>;
  struct Warp {
    std::array<Lane, kLanes> lanes;
    bool empty = true;
  };
  /// The lanes' accesses by one instruction.
  struct Instruction {
    std::array<Access, kLanes> of_lane{};
    unsigned active = 0;   // bit i: lane i
    std::size_t turn = 0;  // in the log of the lane that comes to it last
  };
  /// Which of 128 neighbouring sectors were read before they were written, and written.
  struct Page {
    std::array<std::uint64_t, 2> read{}, written{};
  };

  void merge_in_step(const Warp& warp, const Lane& longest, Statistics& statistics);
  void merge_by_place(const Warp& warp, Statistics& statistics);
  void count(const Instruction& instruction, Statistics& statistics);
  void count_global(const Instruction& instruction, Statistics& statistics);
  void touch(std::uintptr_t sector, bool is_write);

  std::array<Warp, kWarps> warps_;
  std::vector<std::uintptr_t> sectors_;  // of one instruction
  std::unordered_map<std::uintptr_t, Page> pages_;
  std::uintptr_t last_number_ = ~std::uintptr_t{0};  // of the page that was touched last
  Page* last_page_ = nullptr;
};

}  // namespace tessera::emulation
