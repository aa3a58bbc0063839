// OperationObserver: sees every operation that a thread runs.
//
// Every operation ends in run_observed, most of them by run_on (kernels/checks.h). So one place shows all
// operations, forward and backward, to an observer of the calling thread. Without an observer an
// operation reads one pointer more. With one it may take as long as the observer likes: a search for
// a fault copies every argument to the host.
#pragma once

#include <concepts>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/op.h"

namespace tessera {

class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  /// `arguments`: the defined tensors of the call, outputs first. A tensor that several arguments are
  /// parts of, as heads of queries and of keys are, may be there several times.
  virtual void before(std::string_view operation, std::span<const Tensor> arguments) = 0;
  /// The operation is queued, and on a CPU done.
  virtual void after(std::string_view operation, std::span<const Tensor> arguments) = 0;
};

/// That of this thread, or null.
OperationObserver* operation_observer();

/// `observer` sees the operations of this thread during the scope.
class ObserverScope {
 public:
  explicit ObserverScope(OperationObserver& observer);
  ~ObserverScope();
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;

 private:
  OperationObserver* previous_;
};

/// Adds the tensors of an argument of a kernel: a tensor, a list of them, or a part of one (Heads,
/// Columns). Scalars and settings add none.
template <typename T>
void add_tensors(std::vector<Tensor>& tensors, const T& argument) {
  if constexpr (std::convertible_to<const T&, const Tensor&>) {
    if (const Tensor& tensor = argument; tensor.defined()) tensors.push_back(tensor);
  } else if constexpr (std::convertible_to<const T&, std::span<const Tensor>>) {
    for (const Tensor& tensor : std::span<const Tensor>(argument)) add_tensors(tensors, tensor);
  } else if constexpr (requires {
                         { argument.tensor } -> std::convertible_to<const Tensor&>;
                       }) {
    add_tensors(tensors, argument.tensor);
  }
}

/// Runs `work`, an operation on these arguments, and shows it to the thread's observer.
template <typename Work, typename... Arguments>
void run_observed(std::string_view operation, const Work& work, const Arguments&... arguments) {
  OperationObserver* const observer = operation_observer();
  if (observer == nullptr) return work();
  std::vector<Tensor> tensors;
  (add_tensors(tensors, arguments), ...);
  observer->before(operation, tensors);
  work();
  observer->after(operation, tensors);
}

}  // namespace tessera
