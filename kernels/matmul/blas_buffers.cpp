#include "kernels/matmul/blas_buffers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "kernels/matmul/openblas_library.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera::cpu {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{128} << 20;  // BUFFER_SIZE of OpenBLAS on x86-64
constexpr int kMostBuffers = 64;                              // well below OpenBLAS' own limit

std::mutex mutex;  // of the two counts
int wanted = 0;    // by the ranks of this process
int mapped = 0;    // by OpenBLAS, as far as is known

bool can_map(std::size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, bytes);
  return true;
}

/// OpenBLAS' own threads also map a buffer each, and the library's exit waits for them. Where no
/// buffer fits that wait would not end, so the process exits without it.
void exit_without_waiting() {
  static const int once = on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        _exit(status);
      },
      nullptr);
  static_cast<void>(once);
}

/// Has OpenBLAS map `count` buffers. Returns how many it could; holds all at once, since a buffer
/// that is free would be handed out again.
int map_buffers(int count) {
  const OpenBlas& blas = openblas();
  if (!blas.memory_alloc || !blas.memory_free) {
    const auto missing = static_cast<std::size_t>(std::max(0, count - mapped));
    return missing == 0 || can_map(missing * kBufferBytes) ? count : mapped;
  }
  std::vector<void*> held;
  while (static_cast<int>(held.size()) < count && can_map(kBufferBytes)) {
    held.push_back(blas.memory_alloc(0));
  }
  for (void* const buffer : held) blas.memory_free(buffer);
  return static_cast<int>(held.size());
}

}  // namespace

BlasBuffers::BlasBuffers() : threads_(context().threads().size()) {
  // The rank's threads run the blocks of a product; OpenBLAS must not start more of its own.
  [[maybe_unused]] static const bool once = (openblas().set_num_threads(1), true);
  const std::lock_guard lock(mutex);
  const int count = std::min(wanted + threads_, kMostBuffers);
  if (count > mapped) {
    const int possible = map_buffers(count);
    mapped = std::max(mapped, possible);
    if (possible < count) {
      exit_without_waiting();
      fail(
          "matmul: OpenBLAS needs a buffer of 128 MiB of address space per thread, {} in all, and "
          "only {} fit; raise the memory limit (ulimit -v) or use fewer threads",
          count, possible);
    }
  }
  wanted += threads_;
}

BlasBuffers::~BlasBuffers() {
  const std::lock_guard lock(mutex);
  wanted -= threads_;
}

}  // namespace tessera::cpu
