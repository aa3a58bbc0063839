#include "autograd/engine.h"

#include <queue>
#include <utility>

#include "autograd/node.h"
#include "kernels/add/op.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

// The next recorded node's sequence number and scope. Per thread, because a rank is a thread.
thread_local std::uint64_t next_sequence_ = 0;
thread_local std::shared_ptr<BackwardScope> current_scope_;
thread_local bool gradient_is_known_one_ = false;

// Calls a scope's hooks as the engine walks into and out of its nodes.
class ScopeTracker {
 public:
  void enter(const std::shared_ptr<BackwardScope>& scope) {
    if (scope == inside_) return;
    leave();
    inside_ = scope;
    if (inside_ != nullptr) inside_->before_backward();
  }
  void leave() {
    if (inside_ != nullptr) inside_->after_backward();
    inside_ = nullptr;
  }

 private:
  std::shared_ptr<BackwardScope> inside_;
};

/// Restores the old value at its end: a node's backward may run that of a recomputed block.
class KnownOneScope {
 public:
  explicit KnownOneScope(bool known) : previous_(std::exchange(gradient_is_known_one_, known)) {}
  ~KnownOneScope() { gradient_is_known_one_ = previous_; }
  KnownOneScope(const KnownOneScope&) = delete;
  KnownOneScope& operator=(const KnownOneScope&) = delete;

 private:
  bool previous_;
};

struct EarlierFirst {
  bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
    return a->sequence() < b->sequence();  // the queue's top is the latest
  }
};

Tensor one(const Tensor& like) {
  check(like.numel() == 1, "backward needs a seed for a result of more than one element, {}",
        describe(like));
  Tensor seed;
  visit_floating(like.dtype(), [&](auto type) {
    using T = decltype(type);
    seed = Tensor::from(std::vector<T>{T(1.0f)}, like.shape());
  });
  return seed;
}

}  // namespace

bool gradient_is_known_one() {
  return gradient_is_known_one_;
}

Edge Edge::to(const Variable& variable) {
  return variable.defined() ? variable.state_->producer : Edge{};
}

Tensor Edge::take() const {
  if (node != nullptr) return node->take();
  return leaf_gradient != nullptr ? std::exchange(*leaf_gradient, {}) : Tensor();
}

Node::Node(std::vector<Edge> inputs, BackwardFunction function, GradientTotal total)
    : sequence_(next_sequence_++),
      scope_(current_scope_),
      inputs_(std::move(inputs)),
      function_(std::move(function)),
      total_(std::move(total)) {}

void Node::empty_total() const {
  if (total_ != nullptr) *total_ = {};
}

Tensor Node::take() {
  empty_total();
  return std::exchange(gradient_, {});
}

void add_gradient(Tensor& sum, Tensor contribution) {
  if (!sum.defined()) {
    sum = std::move(contribution);
    return;
  }
  if (is_sole_owner(sum)) return add(sum, sum, contribution);
  if (!is_sole_owner(contribution)) {
    const Tensor fresh = Tensor::empty(sum.shape(), sum.dtype());
    add(fresh, sum, contribution);
    sum = fresh;
    return;
  }
  add(contribution, sum, contribution);
  sum = std::move(contribution);
}

bool Node::receive(Tensor contribution) {
  check(!done_, "this graph has run backward before: a graph can run backward once");
  if (gradient_.defined()) empty_total();
  add_gradient(gradient_, std::move(contribution));
  return !std::exchange(reached_, true);
}

void Node::run(const std::function<void(std::shared_ptr<Node>)>& reached) {
  done_ = true;
  const std::vector<Edge> inputs = std::exchange(inputs_, {});
  Gradients gradients;
  {
    const BackwardFunction function = std::exchange(function_, nullptr);
    gradients = function(std::exchange(gradient_, {}));
  }  // the saved tensors are freed here
  check(gradients.size() == inputs.size(), "an operation of {} inputs returned {} gradients",
        inputs.size(), gradients.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Edge& edge = inputs[i];
    if (!edge || !gradients[i].defined()) continue;
    if (edge.leaf_gradient != nullptr) {
      add_gradient(*edge.leaf_gradient, std::move(gradients[i]));
    } else if (edge.node->receive(std::move(gradients[i]))) {
      reached(edge.node);
    }
    gradients[i] = {};
  }
}

void backward(const Variable& root, Tensor seed) {
  check(root.requires_gradient(),
        "backward: the result does not depend on a leaf or a trainable parameter");
  const CategoryScope category(Category::activations);
  const Edge& start = root.state_->producer;
  const bool seed_is_one = !seed.defined();
  if (seed_is_one) seed = one(root.data());
  check(seed.shape() == root.shape() && seed.dtype() == root.dtype(),
        "the seed is {}; expected the shape and dtype of the result, {}", describe(seed),
        describe(root.data()));
  if (start.node == nullptr) return add_gradient(*start.leaf_gradient, std::move(seed));

  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, EarlierFirst>
      ready;
  const auto reached = [&](std::shared_ptr<Node> node) { ready.push(std::move(node)); };
  const auto run = [&](Node& node) {
    const KnownOneScope known(seed_is_one && &node == start.node.get());
    node.run(reached);
  };
  ScopeTracker scopes;
  start.node->receive(std::move(seed));
  ready.push(start.node);
  while (!ready.empty()) {
    const std::shared_ptr<Node> node = ready.top();
    ready.pop();
    scopes.enter(node->scope());
    run(*node);
  }
  scopes.leave();
}

BackwardScopeGuard::BackwardScopeGuard(std::shared_ptr<BackwardScope> scope)
    : previous_(std::exchange(current_scope_, std::move(scope))) {}

BackwardScopeGuard::~BackwardScopeGuard() {
  current_scope_ = std::move(previous_);
}

}  // namespace tessera
