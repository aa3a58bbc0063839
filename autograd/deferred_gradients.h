// Deferred gradients: a backward pass that is cut in two.
//
// The stage before in a pipeline waits for the gradient of a stage's input, and nothing waits for those of its
// weights. While a DeferringScope is open, linear layers put the products that add to their weights' gradients into
// its queue, with their inputs. run() computes them later, in the same order: every sum has the same bits.
#pragma once

#include <functional>
#include <vector>

namespace tessera {

class DeferredGradients {
 public:
  /// Computes all, and frees their inputs one by one.
  void run();
  void add(std::function<void()> work) { work_.push_back(std::move(work)); }

 private:
  std::vector<std::function<void()>> work_;
};

/// Backward passes on this thread put their weights' gradients into `queue`, which must outlive the scope.
class DeferringScope {
 public:
  explicit DeferringScope(DeferredGradients& queue);
  ~DeferringScope();
  DeferringScope(const DeferringScope&) = delete;
  DeferringScope& operator=(const DeferringScope&) = delete;

 private:
  DeferredGradients* previous_;
};

/// Runs `work`, which adds to gradients of weights, at once or in the queue of the open scope.
void run_or_defer(std::function<void()> work);

}  // namespace tessera
