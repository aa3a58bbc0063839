#include "autograd/activation_watch.h"

#include <utility>

#include "kernels/watch/op.h"
#include "runtime/category.h"
#include "runtime/context.h"

namespace tessera {
namespace {

struct CurrentWatch {
  ActivationWatch* watch = nullptr;
};

}  // namespace

ActivationWatch::ActivationWatch(const Units& units) {
  for (const auto& unit : units) {
    number_.emplace(unit.get(), static_cast<std::int64_t>(number_.size()));
  }
  const CategoryScope category(Category::workspace);
  const auto count = static_cast<std::int64_t>(units.size());
  largest_ = Tensor::zeros({count, 2}, DType::f32);
  entropies_ = Tensor::zeros({count, 2}, DType::i64);
}

Tensor ActivationWatch::reading(std::int64_t column) const {
  const std::int64_t at = 2 * unit_ + column;
  return largest_.reshape({largest_.numel()}).slice(at, at + 1);
}

void ActivationWatch::leave(const Tensor& output) {
  if (output.rank() > 1) raise_to_magnitude(reading(0), output);
  unit_ = kNone;
}

void ActivationWatch::attention(const Heads& q, const Heads& k, float scale,
                                const Tensor& first_key) {
  if (unit_ != kNone) raise_to_attention_logit(reading(1), q, k, scale, first_key);
}

void ActivationWatch::router(const Tensor& logits) {
  if (unit_ == kNone) return;
  add_router_entropy(entropies_.reshape({entropies_.numel()}).slice(2 * unit_, 2 * unit_ + 2),
                     logits);
}

ActivationWatch* activation_watch() {
  return context().state<CurrentWatch>().watch;
}

ActivationWatchScope::ActivationWatchScope(ActivationWatch& watch)
    : previous_(std::exchange(context().state<CurrentWatch>().watch, &watch)) {}

ActivationWatchScope::~ActivationWatchScope() {
  context().state<CurrentWatch>().watch = previous_;
}

}  // namespace tessera
