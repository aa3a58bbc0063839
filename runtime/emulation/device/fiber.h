// A fiber: a stack on which code runs until it gives way to another fiber of the same OS thread.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(TESSERA_EMULATION_UCONTEXT)
#define TESSERA_EMULATION_UCONTEXT
#endif
#if defined(TESSERA_EMULATION_UCONTEXT)
#include <ucontext.h>
#endif

namespace tessera::emulation {

/// Below each stack lies a page that cannot be touched: a kernel that needs more stack ends the
/// program with SIGSEGV there ("stack-overflow" under the address sanitizer).
inline constexpr std::size_t kStackBytes = 256 * 1024;

class Fiber {
 public:
  /// For the code that already runs, on its own stack.
  Fiber() = default;
  /// For `entry`, which must not return. It begins when the fiber is first switched to.
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Before the code that already runs is left: it is the calling OS thread's.
  void adopt();

  /// Suspends what runs, as `from`, and continues `to`. Returns when somebody switches to `from`.
  static void change(Fiber& from, Fiber& to);
  /// To be called first of all in `entry`.
  static void begin();

  /// What the running code calls before this fiber, which will never be continued, is destroyed:
  /// what was done on it comes before what others do after acquire(point).
  void publish_for(void* point);

 private:
#if defined(TESSERA_EMULATION_UCONTEXT)
  ucontext_t context_{};
#else
  void* stack_pointer_ = nullptr;  // where its registers are saved
#endif
  char* memory_ = nullptr;  // guard page and stack; null for an adopted stack
  // The sanitizers' view of it.
  const void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* thread_ = nullptr;
};

}  // namespace tessera::emulation
