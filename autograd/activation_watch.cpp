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

ActivationWatch::ActivationWatch(const Units& units, std::int64_t heads) : heads_(heads) {
  for (const auto& unit : units) {
    number_.emplace(unit.get(), static_cast<std::int64_t>(number_.size()));
  }
  const CategoryScope category(Category::workspace);
  const auto count = static_cast<std::int64_t>(units.size());
  largest_ = Tensor::zeros({count, 1 + heads}, DType::f32);
  entropies_ = Tensor::zeros({count, 2}, DType::i64);
}

Tensor ActivationWatch::readings(std::int64_t column, std::int64_t count) const {
  const std::int64_t at = unit_ * (1 + heads_) + column;
  return largest_.reshape({largest_.numel()}).slice(at, at + count);
}

void ActivationWatch::enter(const Unit& unit) {
  unit_ = number_.at(&unit);
  const auto& axis = unit.parameters().front().tensor_axis();
  first_head_ = axis == nullptr ? 0 : axis->rank() * heads_ / axis->ranks();
}

void ActivationWatch::leave(const Tensor& output) {
  if (output.rank() > 1) raise_to_magnitude(readings(0, 1), output);
  unit_ = kNone;
}

void ActivationWatch::attention(const Heads& q, const Heads& k, float scale,
                                const Tensor& first_key, std::int64_t first_head) {
  if (unit_ == kNone) return;
  raise_to_attention_logit(readings(1 + first_head_ + first_head, q.heads), q, k, scale, first_key);
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
