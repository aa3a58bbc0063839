// A fiber: a stack and the code that runs on it until it switches to another fiber.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(TESSERA_EMULATION_UCONTEXT)
#define TESSERA_EMULATION_UCONTEXT
#endif
#if defined(TESSERA_EMULATION_UCONTEXT)
#include <ucontext.h>
#endif

namespace tessera::emulation {

/// A guard page lies below each stack. A kernel that needs more stack ends the program with SIGSEGV
/// ("stack-overflow" under the address sanitizer).
inline constexpr std::size_t kStackBytes = 256 * 1024;

class Fiber {
 public:
  /// The fiber of code that already runs, on its own stack.
  Fiber() = default;
  /// A new stack for `entry`, which must not return. It begins at the first switch to the fiber.
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Takes over the calling OS thread. Called before the code that already runs is left.
  void adopt();

  /// Suspends the running code as `from` and continues `to`. Returns at the next switch to `from`.
  static void change(Fiber& from, Fiber& to);
  /// `entry` calls this first.
  static void begin();

  /// Called before a fiber is destroyed that will never be continued: its accesses come before those
  /// of other fibers after acquire(point).
  void publish_for(void* point);

 private:
#if defined(TESSERA_EMULATION_UCONTEXT)
  ucontext_t context_{};
#else
  void* stack_pointer_ = nullptr;  // its registers are saved there
#endif
  char* memory_ = nullptr;  // guard page and stack; null for an adopted stack
  // The sanitizers' view of it.
  const void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* thread_ = nullptr;
};

}  // namespace tessera::emulation
