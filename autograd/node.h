// The graph's inner parts, shared by variable.cpp, engine.cpp and checkpoint.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/engine.h"
#include "autograd/variable.h"

namespace tessera {

/// Where a gradient goes: to the node that produced the input, to a leaf, or (both null) nowhere.
struct Edge {
  std::shared_ptr<Node> node;
  std::shared_ptr<Tensor> leaf_gradient;

  static Edge to(const Variable& variable);
  /// Takes out the gradient sent this way so far; undefined if nothing was sent.
  Tensor take() const;
  explicit operator bool() const { return node != nullptr || leaf_gradient != nullptr; }
};

/// One recorded operation.
class Node {
 public:
  Node(std::vector<Edge> inputs, BackwardFunction function, GradientTotal total);

  std::uint64_t sequence() const { return sequence_; }
  const std::shared_ptr<BackwardScope>& scope() const { return scope_; }

  /// Adds a consumer's contribution; true if it is the first.
  bool receive(Tensor contribution);
  /// Takes out the gradient received so far; the caller must send another in its place.
  Tensor take();
  const GradientTotal& total() const { return total_; }
  /// Consumes the received gradient, sends contributions along the edges and frees everything.
  /// Calls `reached(node)` for each node that got its first contribution.
  void run(const std::function<void(std::shared_ptr<Node>)>& reached);

 private:
  void empty_total() const;

  std::uint64_t sequence_;
  std::shared_ptr<BackwardScope> scope_;
  std::vector<Edge> inputs_;
  BackwardFunction function_;
  GradientTotal total_;  // of gradient_
  Tensor gradient_;
  bool reached_ = false;
  bool done_ = false;
};

struct Variable::State {
  Tensor data;
  Edge producer;
};

/// Notices whether an operation on this thread uses trainable Parameters, recorded or not.
/// checkpoint() asks this about a stretch that it runs without recording.
class TrainableWatch {
 public:
  TrainableWatch();
  /// An outer watch has then noticed everything that this one noticed.
  ~TrainableWatch();
  TrainableWatch(const TrainableWatch&) = delete;
  TrainableWatch& operator=(const TrainableWatch&) = delete;

  bool seen() const;

 private:
  bool previous_;
};

/// Adds `contribution` to `sum` (or becomes it), reusing whichever tensor has no other owner.
void add_gradient(Tensor& sum, Tensor contribution);

}  // namespace tessera
