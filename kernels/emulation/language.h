// Runs CUDA kernels compiled as plain C++ on the CPU: every CUDA thread of a block is a fiber on
// one OS thread; fibers switch only at barriers and warp collectives, in an order the test chooses.
#pragma once
#define __shared__ static  // only for plain arrays outside templates; prefer SHARED_ARRAY
#define __global__
#define __device__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#define __grid_constant__

#include <sys/mman.h>

#include <vector_types.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/emulation/emulator.h"

#if defined(__SANITIZE_ADDRESS__)
#define TESSERA_EMULATION_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TESSERA_EMULATION_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TESSERA_EMULATION_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TESSERA_EMULATION_TSAN 1
#endif
#endif
#if defined(TESSERA_EMULATION_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(TESSERA_EMULATION_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
}
#endif

// ---- Stack switching
// -------------------------------------------------------------------------------
#if defined(__x86_64__) && !defined(TESSERA_EMULATION_UCONTEXT)
extern "C" void tessera_switch_fiber(void** save, void* load);
asm(R"(
.pushsection .text.tessera_switch_fiber,"ax",@progbits
.weak tessera_switch_fiber
.hidden tessera_switch_fiber
.type tessera_switch_fiber,@function
tessera_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx  # not ret: the return-address predictor would miss every time
.size tessera_switch_fiber,.-tessera_switch_fiber
.popsection
)");
#else
#include <ucontext.h>
#define TESSERA_EMULATION_USES_UCONTEXT 1
#endif

// ---- Coordinates: real globals, so that gdb conditions such as `if threadIdx.x == 5` work
// ------------
inline uint3 threadIdx{};
inline uint3 blockIdx{};
inline dim3 blockDim{};
inline dim3 gridDim{};
inline constexpr int warpSize = 32;

#define TESSERA_EMULATION_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace tessera::emulation {

struct Options {
  std::size_t stack_bytes = 128 * 1024;
  std::size_t shared_memory_limit = 227 * 1024;  // sm_90; 99 KiB for sm_86/89
};
inline Options options;

struct Statistics {
  std::uint64_t blocks, barriers, collectives, switches, matrix_loads, bank_conflicts;
};
inline Statistics statistics{};

enum class State : unsigned char { done, ready, at_barrier, in_collective };

struct Copy {
  void* destination;
  const void* source;
  unsigned bytes;  // of 16; the rest is zero-filled
};

struct Fiber {
#if defined(TESSERA_EMULATION_USES_UCONTEXT)
  ucontext_t context;
#else
  void* stack_pointer = nullptr;
#endif
  char* stack = nullptr;
  std::size_t stack_bytes = 0;
  State state = State::done;
  unsigned linear = 0;
  uint3 index{};
  const char* waits_for = nullptr;
  const char* file = nullptr;
  int line = 0;
  unsigned mask = 0;
  void* operands = nullptr;
  void* synchronisation = nullptr;           // what ThreadSanitizer is told to acquire on resume
  std::vector<std::vector<Copy>> copies{1};  // open group last
  void* fake_stack = nullptr;
  void* sanitizer_fiber = nullptr;
};

struct Barrier {
  unsigned arrived = 0, expected = 0, generation = 0;
  const char* file = nullptr;
  int line = 0;
  int votes = 0, result = 0;
  char synchronisation[2];
};

struct Pending {
  unsigned mask, arrived;
  const char *kind, *file;
  int line;
  void* synchronisation;
};

struct Warp {
  std::vector<Pending> pending;
  unsigned next = 0;
  char synchronisation[64];
};

struct SharedVariable {
  const void* tag;
  char* memory;
  std::size_t bytes;
};

struct Aborted {};  // unwinds the fibers that wait when a block fails

struct Block {
  std::vector<Fiber> pool;  // kept between launches
  Fiber* fibers = nullptr;  // those of the running block
  unsigned threads = 0, running = 0;
  bool aborting = false;
  Fiber* current = nullptr;
  Barrier barriers[16];
  std::vector<Warp> warps;
  std::vector<SharedVariable> shared_variables;
  std::size_t static_shared_bytes = 0, dynamic_shared_bytes = 0, dynamic_allocated = 0;
  unsigned char* dynamic_shared = nullptr;
  void (*body)(const void*) = nullptr;
  const void* arguments = nullptr;
  std::exception_ptr exception;
  char start_synchronisation, end_synchronisation;
  std::uint64_t random = 0;
  Schedule schedule;
#if defined(TESSERA_EMULATION_USES_UCONTEXT)
  ucontext_t scheduler_context;
#else
  void* scheduler_stack_pointer = nullptr;
#endif
  void* scheduler_fake_stack = nullptr;
  const void* scheduler_stack = nullptr;
  std::size_t scheduler_stack_bytes = 0;
  void* scheduler_sanitizer_fiber = nullptr;
};
inline Block block;

// ---- Sanitizer hooks
// -------------------------------------------------------------------------------
#if defined(TESSERA_EMULATION_TSAN)
struct IgnoreAccesses {  // the emulator's own bookkeeping is not the kernel's business
  IgnoreAccesses() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__), AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~IgnoreAccesses() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__), AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
};
inline void publish(void* where) {
  __tsan_release(where);
}
inline void acquire(void* where) {
  __tsan_acquire(where);
}
#else
struct IgnoreAccesses {
  IgnoreAccesses() {}
};
inline void publish(void*) {}
inline void acquire(void*) {}
#endif

inline void switch_to_scheduler(Fiber& fiber) {
#if defined(TESSERA_EMULATION_ASAN)
  __sanitizer_start_switch_fiber(&fiber.fake_stack, block.scheduler_stack,
                                 block.scheduler_stack_bytes);
#endif
#if defined(TESSERA_EMULATION_TSAN)
  __tsan_switch_to_fiber(block.scheduler_sanitizer_fiber, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(TESSERA_EMULATION_USES_UCONTEXT)
  swapcontext(&fiber.context, &block.scheduler_context);
#else
  tessera_switch_fiber(&fiber.stack_pointer, block.scheduler_stack_pointer);
#endif
#if defined(TESSERA_EMULATION_ASAN)
  __sanitizer_finish_switch_fiber(fiber.fake_stack, nullptr, nullptr);
#endif
}

inline void resume(Fiber& fiber) {
  block.current = &fiber;
  threadIdx = fiber.index;
  ++statistics.switches;
#if defined(TESSERA_EMULATION_ASAN)
  __sanitizer_start_switch_fiber(&block.scheduler_fake_stack, fiber.stack, fiber.stack_bytes);
#endif
#if defined(TESSERA_EMULATION_TSAN)
  __tsan_switch_to_fiber(fiber.sanitizer_fiber, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(TESSERA_EMULATION_USES_UCONTEXT)
  swapcontext(&block.scheduler_context, &fiber.context);
#else
  tessera_switch_fiber(&block.scheduler_stack_pointer, fiber.stack_pointer);
#endif
#if defined(TESSERA_EMULATION_ASAN)
  __sanitizer_finish_switch_fiber(block.scheduler_fake_stack, nullptr, nullptr);
#endif
}

[[noreturn]] inline void fiber_main() {
  Fiber& fiber = *block.current;
#if defined(TESSERA_EMULATION_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &block.scheduler_stack, &block.scheduler_stack_bytes);
#endif
  for (;;) {
    acquire(&block.start_synchronisation);
    try {
      if (block.aborting) throw Aborted{};
      block.body(block.arguments);
      if (fiber.copies.size() > 1 || !fiber.copies.back().empty())
        throw Failure("thread exits with cp.async copies in flight");
    } catch (const Aborted&) {
    } catch (...) {
      IgnoreAccesses ignore;
      if (!block.exception) block.exception = std::current_exception();
    }
    publish(&block.end_synchronisation);
    {
      IgnoreAccesses ignore;
      fiber.state = State::done;
      --block.running;
    }
    switch_to_scheduler(fiber);
  }
}

inline void prepare(Fiber& fiber) {
  const std::size_t guard = 4096;
  fiber.stack_bytes = options.stack_bytes;
  char* memory = static_cast<char*>(mmap(nullptr, fiber.stack_bytes + guard, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (memory == MAP_FAILED || mprotect(memory, guard, PROT_NONE))
    throw Failure("no memory for fiber stacks");
  fiber.stack = memory + guard;
#if defined(TESSERA_EMULATION_TSAN)
  fiber.sanitizer_fiber = __tsan_create_fiber(0);
#endif
#if defined(TESSERA_EMULATION_USES_UCONTEXT)
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = fiber.stack_bytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, reinterpret_cast<void (*)()>(&fiber_main), 0);
#else
  void** top = reinterpret_cast<void**>(fiber.stack + fiber.stack_bytes) -
               1;                                 // the ABI wants sp % 16 == 8 at entry
  *top = nullptr;                                 // fiber_main's return address: ends backtraces
  *--top = reinterpret_cast<void*>(&fiber_main);  // where the first switch returns to
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;  // rbp rbx r12..r15
  fiber.stack_pointer = top;
#endif
}

// ---- Waiting
// ---------------------------------------------------------------------------------------
inline void suspend(State state, const char* waits_for, unsigned mask, const char* file, int line) {
  Fiber& fiber = *block.current;
  fiber.state = state;
  fiber.waits_for = waits_for;
  fiber.mask = mask;
  fiber.file = file;
  fiber.line = line;
  switch_to_scheduler(fiber);
  if (block.aborting) throw Aborted{};
}

inline std::string place(const char* file, int line) {
  const char* slash = file ? std::strrchr(file, '/') : nullptr;
  return std::string(slash ? slash + 1 : file ? file : "?") + ":" + std::to_string(line);
}

inline std::string coordinates(const Fiber& fiber) {
  auto triple = [](unsigned x, unsigned y, unsigned z) {
    return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
  };
  return "block " + triple(blockIdx.x, blockIdx.y, blockIdx.z) + " thread " +
         triple(fiber.index.x, fiber.index.y, fiber.index.z);
}

[[noreturn]] inline void fail(const std::string& what, const char* file = nullptr, int line = 0) {
  IgnoreAccesses ignore;
  throw Failure(coordinates(*block.current) + (file ? " at " + place(file, line) : "") + ": " +
                what);
}

inline int synchronise_block(unsigned id, unsigned count, int vote, bool same_place,
                             const char* file, int line) {
  Barrier& barrier = block.barriers[id];
  void* synchronisation = &barrier.synchronisation[barrier.generation & 1];
  publish(synchronisation);
  int result;
  {
    IgnoreAccesses ignore;
    if (barrier.arrived == 0) {
      barrier.expected = count, barrier.file = file, barrier.line = line, barrier.votes = 0;
    } else if (same_place && (barrier.line != line || std::strcmp(barrier.file, file))) {
      fail("__syncthreads here while other threads wait at " + place(barrier.file, barrier.line),
           file, line);
    } else if (barrier.expected != count) {
      fail("named barrier used with two thread counts", file, line);
    }
    barrier.votes += vote != 0;
    if (++barrier.arrived == count) {
      ++statistics.barriers;
      barrier.result = barrier.votes;
      barrier.arrived = 0;
      ++barrier.generation;
      for (unsigned other = 0; other < block.threads; ++other)
        if (block.fibers[other].state == State::at_barrier && block.fibers[other].mask == id)
          block.fibers[other].state = State::ready;
    } else {
      suspend(State::at_barrier, "__syncthreads", id, file, line);
    }
    result = barrier.result;
  }
  acquire(synchronisation);
  return result;
}

// Every lane in `mask` brings its operands (which live on its own stack); the last one to arrive
// runs `execute(lanes)`, which may read and write all of them.
template <bool orders_memory, typename Operands, typename Execute>
void warp_collective(unsigned mask, const char* kind, Operands& operands, Execute execute,
                     const char* file, int line) {
  void* synchronisation = nullptr;
  if constexpr (orders_memory) {
    IgnoreAccesses ignore;
    Warp& warp = block.warps[block.current->linear / 32];
    for (Pending& entry : warp.pending)
      if (entry.mask == mask) synchronisation = entry.synchronisation;
    if (!synchronisation) synchronisation = &warp.synchronisation[warp.next % 64];
  }
  if constexpr (orders_memory) publish(synchronisation);
  {
    IgnoreAccesses ignore;
    Fiber& self = *block.current;
    const unsigned lane = self.linear % 32;
    Warp& warp = block.warps[self.linear / 32];
    if (!(mask >> lane & 1)) fail(std::string(kind) + ": own lane is not in the mask", file, line);
    auto entry = std::find_if(warp.pending.begin(), warp.pending.end(),
                              [&](Pending& p) { return p.mask == mask; });
    if (entry == warp.pending.end()) {
      warp.pending.push_back({mask, 0, kind, file, line, synchronisation});
      ++warp.next;
      entry = warp.pending.end() - 1;
    } else if (std::strcmp(entry->kind, kind) || entry->line != line ||
               std::strcmp(entry->file, file)) {
      fail(std::string(kind) + " while other lanes of the mask wait in " + entry->kind + " at " +
               place(entry->file, entry->line),
           file, line);
    }
    self.operands = &operands;
    entry->arrived |= 1u << lane;
    if (entry->arrived == mask) {
      ++statistics.collectives;
      warp.pending.erase(entry);
      Operands* lanes[32] = {};
      Fiber* first = &block.fibers[self.linear - lane];
      for (unsigned other = 0; other < 32; ++other)
        if (mask >> other & 1) {
          lanes[other] = static_cast<Operands*>(first[other].operands);
          first[other].state = State::ready;
        }
      execute(lanes);
    } else {
      suspend(State::in_collective, kind, mask, file, line);
    }
  }
  if constexpr (orders_memory) acquire(synchronisation);
}

template <typename T>
T exchange(unsigned mask, T value, int source, const char* kind, const char* file, int line) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) <= 8),
                "not a type that CUDA shuffles");
  struct Operands {
    T value, result;
    int source;
    bool valid;
  } operands{value, value, source, true};
  warp_collective<false>(
      mask, kind, operands,
      [](Operands** lanes) {
        for (int lane = 0; lane < 32; ++lane)
          if (lanes[lane]) {
            Operands* from = lanes[lanes[lane]->source];
            lanes[lane]->valid = from != nullptr;
            if (from) lanes[lane]->result = from->value;
          }
      },
      file, line);
  if (!operands.valid)
    fail(std::string(kind) + " reads a lane that is not in the mask", file, line);
  return operands.result;
}

inline unsigned vote(unsigned mask, bool predicate, const char* kind, const char* file, int line) {
  struct Operands {
    bool predicate;
    unsigned result;
  } operands{predicate, 0};
  warp_collective<false>(
      mask, kind, operands,
      [](Operands** lanes) {
        unsigned ballot = 0;
        for (int lane = 0; lane < 32; ++lane)
          ballot |= (lanes[lane] && lanes[lane]->predicate ? 1u : 0u) << lane;
        for (int lane = 0; lane < 32; ++lane)
          if (lanes[lane]) lanes[lane]->result = ballot;
      },
      file, line);
  return operands.result;
}

inline unsigned lane() {
  return block.current->linear % 32;
}

// ---- Shared memory: fresh, red-zoned and NaN-filled for every block
// -----------------------------------
inline char* fresh_memory(std::size_t bytes, std::size_t alignment) {
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max<std::size_t>(alignment, 16),
                     std::max<std::size_t>(bytes, 1)))
    throw Failure("no memory");
  std::memset(memory, 0xff, bytes);  // NaN in float, bf16 and fp16; -1 in int
  return static_cast<char*>(memory);
}

template <typename T>
T& shared_variable(const void* tag) {
  IgnoreAccesses ignore;
  for (SharedVariable& variable : block.shared_variables)
    if (variable.tag == tag) return *reinterpret_cast<T*>(variable.memory);
  block.static_shared_bytes += sizeof(T);
  if (block.static_shared_bytes > 48 * 1024) fail("more than 48 KiB of static shared memory");
  block.shared_variables.push_back({tag, fresh_memory(sizeof(T), alignof(T)), sizeof(T)});
  return *reinterpret_cast<T*>(block.shared_variables.back().memory);
}

inline bool is_shared(const void* address, std::size_t bytes) {
  const char* first = static_cast<const char*>(address);
  const char* dynamic = reinterpret_cast<const char*>(block.dynamic_shared);
  if (first >= dynamic && first + bytes <= dynamic + block.dynamic_allocated) return true;
  for (const SharedVariable& variable : block.shared_variables)
    if (first >= variable.memory && first + bytes <= variable.memory + variable.bytes) return true;
  return false;
}

class SharedMemoryCarver {  // red zones between the pieces; the sum must fit what was asked for at
                            // launch
 public:
  template <typename T>
  T* take(std::size_t count, std::size_t alignment = 16) {
    constexpr std::size_t red_zone = 64;
    IgnoreAccesses ignore;
    used_ = (used_ + alignment - 1) / alignment * alignment + count * sizeof(T);
    if (used_ > block.dynamic_shared_bytes)
      fail("kernel carves more dynamic shared memory than the launch gave");
    offset_ = (offset_ + alignment - 1) / alignment * alignment;
    if (offset_ + count * sizeof(T) + red_zone > block.dynamic_allocated)
      fail("too many pieces of shared memory");
    unsigned char* piece = block.dynamic_shared + offset_;
    offset_ += count * sizeof(T);
#if defined(TESSERA_EMULATION_ASAN)
    __asan_poison_memory_region(block.dynamic_shared + offset_, red_zone);
#endif
    offset_ += red_zone;
    return reinterpret_cast<T*>(piece);
  }

 private:
  std::size_t used_ = 0, offset_ = 0;
};

// ---- The scheduler
// ---------------------------------------------------------------------------------
inline unsigned draw() {
  block.random = block.random * 6364136223846793005u + 1442695040888963407u;
  return unsigned(block.random >> 33);
}

inline void arrange(std::vector<unsigned>& order, Order kind) {
  for (unsigned position = 0; position < order.size(); ++position) order[position] = position;
  if (kind == Order::reverse) std::reverse(order.begin(), order.end());
  if (kind == Order::shuffled)
    for (std::size_t left = order.size(); left > 1; --left)
      std::swap(order[left - 1], order[draw() % left]);
}

[[noreturn]] inline void report_deadlock() {
  std::vector<std::pair<std::string, std::vector<unsigned>>> groups;
  for (unsigned thread = 0; thread < block.threads; ++thread) {
    const Fiber& fiber = block.fibers[thread];
    std::string what = "exited";
    if (fiber.state != State::done) {
      char mask[32] = "";
      if (fiber.state == State::in_collective)
        std::snprintf(mask, sizeof mask, " mask %08x", fiber.mask);
      what =
          std::string("wait in ") + fiber.waits_for + mask + " at " + place(fiber.file, fiber.line);
    }
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](auto& g) { return g.first == what; });
    if (group == groups.end()) groups.push_back({what, {}}), group = groups.end() - 1;
    group->second.push_back(thread);
  }
  std::string message = "divergence in block (" + std::to_string(blockIdx.x) + "," +
                        std::to_string(blockIdx.y) + "," + std::to_string(blockIdx.z) + "):";
  for (auto& [what, threads] : groups)
    message += " " + std::to_string(threads.size()) + " threads (first " +
               std::to_string(threads[0]) + ") " + what + ";";
  throw Failure(message);
}

inline bool run_warp(unsigned warp, std::vector<unsigned>& lanes) {  // each ready lane once
  bool progress = false;
  arrange(lanes, block.schedule.threads);
  for (unsigned lane : lanes) {
    const unsigned thread = warp * 32 + lane;
    if (thread < block.threads && block.fibers[thread].state == State::ready && !block.exception)
      progress = true, resume(block.fibers[thread]);
  }
  return progress;
}

inline void run_block() {
  constexpr std::size_t slack = 64 * 1024;
  const std::size_t extra = block.dynamic_shared_bytes ? slack : 0;
  block.dynamic_allocated = block.dynamic_shared_bytes + extra;
  block.dynamic_shared =
      reinterpret_cast<unsigned char*>(fresh_memory(block.dynamic_allocated, 128));
  block.static_shared_bytes = 0;
  block.exception = nullptr;
  block.running = block.threads;
  for (Barrier& barrier : block.barriers) barrier.arrived = 0;
  for (Warp& warp : block.warps) warp.pending.clear();
  for (unsigned thread = 0; thread < block.threads; ++thread) {
    Fiber& fiber = block.fibers[thread];
    fiber.state = State::ready;
    fiber.linear = thread;
    fiber.index = {thread % blockDim.x, thread / blockDim.x % blockDim.y,
                   thread / (blockDim.x * blockDim.y)};
    fiber.copies.assign(1, {});
  }
  ++statistics.blocks;
  std::vector<unsigned> lanes(32), warps(block.warps.size());
  bool stuck = false;
  while (block.running && !block.exception && !stuck) {
    stuck = true;
    arrange(warps, block.schedule.threads);
    for (unsigned warp : warps)
      while (run_warp(warp, lanes)) {
        stuck = false;
        if (block.schedule.threads == Order::shuffled && draw() % 4 == 0) break;
      }
  }
  std::exception_ptr failure = block.exception;
  if (stuck) {
    try {
      report_deadlock();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  block.aborting = true;
  for (unsigned thread = 0; thread < block.threads; ++thread)
    if (block.fibers[thread].state != State::done) resume(block.fibers[thread]);
  block.aborting = false;
#if defined(TESSERA_EMULATION_ASAN)
  __asan_unpoison_memory_region(block.dynamic_shared, block.dynamic_allocated);
#endif
  std::free(block.dynamic_shared);
  for (SharedVariable& variable : block.shared_variables) std::free(variable.memory);
  block.shared_variables.clear();
  if (failure) std::rethrow_exception(failure);
}

inline void run_grid(dim3 grid, dim3 threads, std::size_t shared_bytes) {
  const unsigned count = threads.x * threads.y * threads.z;
  if (count == 0 || count > 1024) throw Failure("a block has 1 to 1024 threads");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535)
    throw Failure("grid out of range");
  if (shared_bytes > options.shared_memory_limit)
    throw Failure("more shared memory than the device has");
  struct AcquireAtEnd {  // also when a block fails
    ~AcquireAtEnd() { acquire(&block.end_synchronisation); }
  } acquire_at_end;
  {
    IgnoreAccesses ignore;
    gridDim = grid;
    blockDim = threads;
    block.threads = count;
    block.dynamic_shared_bytes = shared_bytes;
    block.schedule = schedule();
    block.random = block.schedule.seed;
    block.warps.resize((count + 31) / 32);
#if defined(TESSERA_EMULATION_TSAN)
    block.scheduler_sanitizer_fiber = __tsan_get_current_fiber();
#endif
#if defined(TESSERA_EMULATION_TSAN)
    const unsigned sets =
        2;  // neighbouring blocks run on different fibers, so that races between blocks show
#else
    const unsigned sets = 1;
#endif
    if (block.pool.size() < count * sets) {
      const std::size_t before = block.pool.size();
      block.pool.reserve(2048);  // fibers never move
      block.pool.resize(count * sets);
      for (std::size_t fiber = before; fiber < block.pool.size(); ++fiber)
        prepare(block.pool[fiber]);
    }
    std::vector<unsigned> blocks(std::size_t(grid.x) * grid.y * grid.z);
    arrange(blocks, block.schedule.blocks);
    publish(&block.start_synchronisation);
    unsigned turn = 0;
    for (unsigned linear : blocks) {
      block.fibers = block.pool.data() + turn++ % sets * count;
      blockIdx = {linear % grid.x, linear / grid.x % grid.y, linear / (grid.x * grid.y)};
      run_block();
    }
  }
}

template <typename... Parameters>
struct Call {
  void (*kernel)(Parameters...);
  std::tuple<Parameters...> values;
  template <std::size_t... index>
  void operator()(std::index_sequence<index...>) const {
    kernel(std::get<index>(values)...);
  }
};

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 threads, std::size_t shared_bytes,
            Arguments&&... arguments) {
  const Call<Parameters...> call{kernel,
                                 {static_cast<Parameters>(std::forward<Arguments>(arguments))...}};
  block.arguments = &call;
  block.body = [](const void* erased) {
    (*static_cast<const Call<Parameters...>*>(erased))(std::index_sequence_for<Parameters...>{});
  };
  run_grid(grid, threads, shared_bytes);
}

}  // namespace tessera::emulation

// ---- Device functions
// ------------------------------------------------------------------------------
inline void __syncthreads(TESSERA_EMULATION_SITE) {
  tessera::emulation::synchronise_block(0, tessera::emulation::block.threads, 0, true, file, line);
}
inline int __syncthreads_or(int predicate, TESSERA_EMULATION_SITE) {
  return tessera::emulation::synchronise_block(0, tessera::emulation::block.threads, predicate,
                                               true, file, line) != 0;
}
inline int __syncthreads_count(int predicate, TESSERA_EMULATION_SITE) {
  return tessera::emulation::synchronise_block(0, tessera::emulation::block.threads, predicate,
                                               true, file, line);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, TESSERA_EMULATION_SITE) {
  char nothing;
  tessera::emulation::warp_collective<true>(
      mask, "__syncwarp", nothing, [](char**) {}, file, line);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, TESSERA_EMULATION_SITE) {
  const int base = int(tessera::emulation::lane()) & ~(width - 1);
  return tessera::emulation::exchange(mask, value, base + (source & (width - 1)), "__shfl_sync",
                                      file, line);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32, TESSERA_EMULATION_SITE) {
  const int lane = int(tessera::emulation::lane()), base = lane & ~(width - 1),
            source = lane ^ distance;
  return tessera::emulation::exchange(mask, value, source < base + width ? source : lane,
                                      "__shfl_xor_sync", file, line);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   TESSERA_EMULATION_SITE) {
  const int lane = int(tessera::emulation::lane()), base = lane & ~(width - 1),
            source = lane + int(distance);
  return tessera::emulation::exchange(mask, value, source < base + width ? source : lane,
                                      "__shfl_down_sync", file, line);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 TESSERA_EMULATION_SITE) {
  const int lane = int(tessera::emulation::lane()), base = lane & ~(width - 1),
            source = lane - int(distance);
  return tessera::emulation::exchange(mask, value, source >= base ? source : lane, "__shfl_up_sync",
                                      file, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, TESSERA_EMULATION_SITE) {
  return tessera::emulation::vote(mask, predicate, "__ballot_sync", file, line);
}
inline int __any_sync(unsigned mask, int predicate, TESSERA_EMULATION_SITE) {
  return tessera::emulation::vote(mask, predicate, "__any_sync", file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, TESSERA_EMULATION_SITE) {
  return tessera::emulation::vote(mask, predicate, "__all_sync", file, line) == mask;
}

// Stronger than CUDA's relaxed order, so that ThreadSanitizer accepts atomics paired with
// __threadfence.
template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> target(*address);
  if constexpr (std::is_floating_point_v<T>) {
    T old = target.load(std::memory_order_acquire);
    while (!target.compare_exchange_weak(old, old + value, std::memory_order_acq_rel)) {
    }
    return old;
  } else {
    return target.fetch_add(value, std::memory_order_acq_rel);
  }
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> target(*address);
  T old = target.load(std::memory_order_acquire);
  while (old < value && !target.compare_exchange_weak(old, value, std::memory_order_acq_rel)) {
  }
  return old;
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> target(*address);
  T old = target.load(std::memory_order_acquire);
  while (value < old && !target.compare_exchange_weak(old, value, std::memory_order_acq_rel)) {
  }
  return old;
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(compare, value, std::memory_order_acq_rel);
  return compare;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, T value) {
  *address = value;
}

inline float __expf(float x) {
  return std::exp(x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __log2f(float x) {
  return std::log2(x);
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
// A call of its own, so that the compiler cannot fuse the sum with a product.
[[gnu::noinline]] inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fmaf_rn(float x, float y, float z) {
  return std::fma(x, y, z);
}
inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __clz(int x) {
  return x ? __builtin_clz(unsigned(x)) : 32;
}
using std::isfinite;
using std::max;
using std::min;
