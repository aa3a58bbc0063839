#include "autograd/deferred_gradients.h"

#include <utility>

#include "runtime/category.h"

namespace tessera {
namespace {

thread_local DeferredGradients* open_queue = nullptr;

}  // namespace

void DeferredGradients::run() {
  const CategoryScope category(Category::activations);  // as in backward
  for (std::function<void()>& work : work_) std::exchange(work, nullptr)();
  work_.clear();
}

DeferringScope::DeferringScope(DeferredGradients& queue)
    : previous_(std::exchange(open_queue, &queue)) {}

DeferringScope::~DeferringScope() {
  open_queue = previous_;
}

void run_or_defer(std::function<void()> work) {
  if (open_queue == nullptr) return work();
  open_queue->add(std::move(work));
}

}  // namespace tessera
