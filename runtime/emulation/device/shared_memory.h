// Shared memory of the running blocks: new in each, filled with NaNs, with a red zone after every array.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "runtime/emulation/device/launch.h"

namespace tessera::emulation {

class SharedMemory {
 public:
  void begin_grid(const Launch& launch);
  void begin_block();
  void end_block();

  /// The array of the static declaration with this tag. It is aligned as its type requires and no
  /// better, so a declaration of floats cannot be read as float4.
  void* variable(const void* tag, std::size_t bytes, std::size_t alignment);
  /// The array at [offset, offset + bytes) of the dynamic shared memory. Its address modulo 128 is
  /// that on a GPU, so alignment and banks are the same. (Modulo 1024, where a swizzle repeats, it is
  /// the offset: a kernel that needs more than 128 takes TileMemory.)
  void* piece(std::size_t offset, std::size_t bytes);
  /// The place of `data` in the shared memory of block `rank` of the cluster. Null if that block has no
  /// such array.
  void* in_block(const void* data, unsigned rank);
  /// Bytes of static declarations in a block: the most of any block of the grid.
  std::size_t static_bytes() const { return most_static_bytes_; }
  /// Do these bytes lie in one of the arrays?
  bool contains(const void* data, std::size_t bytes) const;
  /// Is this an address of shared memory, used or not? (Not under the thread sanitizer.)
  bool in_arena(const void* data) const;

  /// The copy engine and wgmma see shared memory through a view of their own. The engine's writes show
  /// in it at once. Ordinary writes show after a fence of the thread that noted them; a write that no
  /// thread noted never does.
  const void* engine_view(const void* data);
  void show_to_engines(const void* data, std::size_t bytes);
  void note_write_for_engines(unsigned thread, const void* data, std::size_t bytes);
  void show_writes_to_engines(unsigned thread);
  /// A cp.async writes the 16 bytes at `data`, and its thread has not waited for it, or has not fenced since.
  /// The fence, or a write of the engine, ends both.
  enum class Copied : unsigned char { seen, in_flight, unfenced };
  void note_copy(const void* data, Copied state);
  /// The last of these states among the bytes, which are in one array.
  Copied copied(const void* data, std::size_t bytes);

 private:
  struct Array {
    unsigned rank;    // of its block in the cluster
    const void* tag;  // null: dynamic
    std::size_t offset, bytes;
    char* memory;
    std::vector<char> engine_view{};  // empty until an engine looks
    std::vector<Copied> copied{};     // of each 16 bytes; empty without cp.async
  };
  struct Write {
    const void* data;
    std::size_t bytes;
  };
  Array& array_of(const void* data);
  static std::size_t offset_in(const Array& array, const void* data);
  static char* view_of(Array& array);
  char* add(Array array, std::size_t remainder);
  char* reserve(std::size_t bytes, std::size_t remainder);
  std::size_t static_bytes_of_block() const;

  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::vector<Array> arrays_;
  std::vector<std::vector<Write>> unfenced_;  // each thread's, for engines
  std::size_t dynamic_bytes_ = 0, most_static_bytes_ = 0;
  SharedMemoryLimits limits_;
  std::unique_ptr<char, Free> arena_;
  std::size_t used_ = 0;            // of the arena
  std::vector<char*> allocations_;  // under the thread sanitizer, in place of the arena
};

/// The running block's array of a TESSERA_SHARED declaration.
void* shared_variable(const void* tag, std::size_t bytes, std::size_t alignment);
template <typename T>
T& shared_variable(const void* tag) {
  return *static_cast<T*>(shared_variable(tag, sizeof(T), alignof(T)));
}

/// Hands out the block's dynamic shared memory piece by piece. Every thread makes the same calls.
class SharedMemoryCarver {
 public:
  template <typename T>
  T* take(std::size_t count, std::size_t alignment = 16) {
    offset_ = (offset_ + alignment - 1) / alignment * alignment;
    void* piece = take_bytes(count * sizeof(T));
    offset_ += count * sizeof(T);
    return static_cast<T*>(piece);
  }

 private:
  void* take_bytes(std::size_t bytes) const;
  std::size_t offset_ = 0;
};

}  // namespace tessera::emulation
