#include "runtime/emulation/device/fiber.h"

#include <sys/mman.h>

#include "runtime/emulation/device/emulator.h"
#include "runtime/emulation/device/sanitizers.h"

#if !defined(TESSERA_EMULATION_UCONTEXT)
// Saves the registers that a function must preserve on the running stack, and the stack's pointer in
// *save. Then continues on the stack `load`. System V ABI for x86-64, figure 3.4.
extern "C" void tessera_change_stack(void** save, void* load);
asm(R"(
.pushsection .text.tessera_change_stack,"ax",@progbits
.hidden tessera_change_stack
.type tessera_change_stack,@function
tessera_change_stack:
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
  jmp *%rcx  # not ret: the predictor of return addresses would be wrong every time
.size tessera_change_stack,.-tessera_change_stack
.popsection
)");
#endif

namespace tessera::emulation {
namespace {

constexpr std::size_t kGuardBytes = 4096;

// A stack's beginning, in bytes below its end. Stacks begin at different places in their pages:
// otherwise the threads of a block would compete for the same few cache lines.
std::size_t beginning() {
  static std::size_t stacks = 0;
  return stacks++ * 320 % 4096;
}

Fiber* left = nullptr;  // the fiber that the running one was continued from

}  // namespace

Fiber::Fiber(void (*entry)()) {
  memory_ = static_cast<char*>(mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (memory_ == MAP_FAILED || mprotect(memory_, kGuardBytes, PROT_NONE) != 0) {
    throw Failure("no memory for the stacks of a block's threads");
  }
  stack_ = memory_ + kGuardBytes;
  stack_bytes_ = kStackBytes;
#if defined(TESSERA_EMULATION_TSAN)
  thread_ = __tsan_create_fiber(0);
#endif
#if defined(TESSERA_EMULATION_UCONTEXT)
  getcontext(&context_);
  context_.uc_stack.ss_sp = memory_ + kGuardBytes;
  context_.uc_stack.ss_size = kStackBytes - beginning();
  makecontext(&context_, entry, 0);
#else
  void** top = reinterpret_cast<void**>(memory_ + kGuardBytes + kStackBytes - beginning());
  *--top = nullptr;                              // entry's return address: ends backtraces
  *--top = reinterpret_cast<void*>(entry);       // the first change of stacks jumps there
  for (int i = 0; i < 6; ++i) *--top = nullptr;  // the registers that it restores
  stack_pointer_ = top;
#endif
}

Fiber::~Fiber() {
  if (memory_ == nullptr) return;
  unpoison(stack_, stack_bytes_);  // frames that were left in the middle
#if defined(TESSERA_EMULATION_TSAN)
  __tsan_destroy_fiber(thread_);
#endif
  munmap(memory_, kGuardBytes + kStackBytes);
}

void Fiber::adopt() {
#if defined(TESSERA_EMULATION_TSAN)
  thread_ = __tsan_get_current_fiber();
#endif
}

// The address sanitizer takes the bounds of the stack that is entered and returns those of the stack
// that was left. This is how the bounds of an adopted stack become known.
void Fiber::change(Fiber& from, Fiber& to) {
  left = &from;
#if defined(TESSERA_EMULATION_ASAN)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.stack_bytes_);
#endif
#if defined(TESSERA_EMULATION_TSAN)
  __tsan_switch_to_fiber(to.thread_, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(TESSERA_EMULATION_UCONTEXT)
  swapcontext(&from.context_, &to.context_);
#else
  tessera_change_stack(&from.stack_pointer_, to.stack_pointer_);
#endif
#if defined(TESSERA_EMULATION_ASAN)
  __sanitizer_finish_switch_fiber(from.fake_stack_, &left->stack_, &left->stack_bytes_);
#endif
}

void Fiber::begin() {
#if defined(TESSERA_EMULATION_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &left->stack_, &left->stack_bytes_);
#endif
}

void Fiber::publish_for([[maybe_unused]] void* point) {
#if defined(TESSERA_EMULATION_TSAN)
  void* running = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(thread_, __tsan_switch_to_fiber_no_sync);
  __tsan_release(point);
  __tsan_switch_to_fiber(running, __tsan_switch_to_fiber_no_sync);
#endif
}

}  // namespace tessera::emulation
