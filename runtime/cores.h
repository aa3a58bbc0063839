// The cores that threads run on.
//
// A core is one by the operating system's count: a hyperthread, where the CPU has them. A process has
// the cores that a container, taskset or mpirun leaves it. The system moves threads between them, but
// a bound thread stays on its core. Binding works on Linux.
#pragma once

#include <functional>
#include <span>
#include <thread>
#include <vector>

namespace tessera {

/// Numbers of cores are below this.
inline constexpr int kMostCores = 1024;

/// The cores that the calling thread may run on, ascending; inside BoundThread's scope those from
/// before. Empty if the system does not tell.
std::vector<int> allowed_cores();

/// Lets a thread run on these cores alone. Returns 0, or the number of the system's error.
int set_cores(std::thread::native_handle_type thread, std::span<const int> cores);

/// Binds a thread to one core. Raises Error if the system refuses.
void bind_to_core(std::thread::native_handle_type thread, int core);

/// Binds the calling thread to one core for the scope. Raises Error if the system refuses.
class BoundThread {
 public:
  explicit BoundThread(int core);
  ~BoundThread();
  BoundThread(const BoundThread&) = delete;
  BoundThread& operator=(const BoundThread&) = delete;

 private:
  const std::vector<int> before_;
  const std::vector<int>* const outer_;
};

/// Starts a thread that may run on all of allowed_cores(). (A thread inherits the binding of the
/// thread that starts it, and the two would share one core.)
std::thread start_unbound(std::function<void()> body);

}  // namespace tessera
