// The backward pass.
//
// Every recorded operation is a Node with a sequence number. A consumer is always recorded after
// its inputs' producers, so running nodes in reverse order of creation guarantees that a node's
// gradient is complete when its turn comes. This takes a priority queue, no recursion and no
// counting of dependencies, and the order is the same in every run. A node's saved tensors, and the
// gradient it consumed, are freed as soon as it has run.
#pragma once

#include <cstdint>
#include <memory>

#include "autograd/variable.h"

namespace tessera {

/// Runs the graph below `root`. `seed` is the gradient of `root`; without one, `root` must have one
/// element and the seed is 1. Leaves add to gradient(), Parameters to their gradient windows. A
/// graph can be run once; a second run raises Error.
void backward(const Variable& root, Tensor seed = {});

/// Inside a node's backward: whether the node is the root of a backward without a seed. Then its
/// gradient is 1, and the host need not read it back from a GPU.
bool gradient_is_known_one();

/// A stretch of the forward pass. Its backward has a beginning and an end.
///
/// Nodes recorded inside the stretch have consecutive sequence numbers, so in backward they run
/// consecutively too. The engine calls before_backward before the first of them. It calls
/// after_backward after the last, when all gradients of the stretch have been written.
class BackwardScope {
 public:
  virtual ~BackwardScope() = default;
  virtual void before_backward() = 0;
  virtual void after_backward() = 0;
};

/// Nodes recorded on this thread during the guard belong to `scope` (null: to none).
class BackwardScopeGuard {
 public:
  explicit BackwardScopeGuard(std::shared_ptr<BackwardScope> scope);
  ~BackwardScopeGuard();
  BackwardScopeGuard(const BackwardScopeGuard&) = delete;
  BackwardScopeGuard& operator=(const BackwardScopeGuard&) = delete;

 private:
  std::shared_ptr<BackwardScope> previous_;
};

}  // namespace tessera
