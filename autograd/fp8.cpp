#include "autograd/fp8.h"

#include <algorithm>
#include <utility>

#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera {
namespace {

struct CurrentFp8 {
  Fp8State* state = nullptr;
  /// Takes the largest magnitudes that are not kept.
  Tensor unread;
};

constexpr std::string_view kRoleNames[] = {"input", "weight", "gradient"};

/// Rounds `values` to to(), in the current scope. False, and nothing is done, if they are not rounded.
template <typename To>
bool round_in_scope(const JoinedParameters& weight, Fp8Role role, const Tensor& values,
                    const To& to) {
  const auto& [state, unread] = context().state<CurrentFp8>();
  if (state == nullptr) return false;
  const auto place = state->place(weight.parts().front(), role);
  if (!place) return false;
  fp8_round(to(), values, place->format, place->scale, unread.defined() ? unread : place->largest);
  return true;
}

/// A rounded copy in memory of this category, or `values` itself where nothing is rounded.
Tensor rounded_copy(const JoinedParameters& weight, Fp8Role role, const Tensor& values,
                    Category category) {
  Tensor copy;
  const bool rounds = round_in_scope(weight, role, values, [&] {
    const CategoryScope scope(category);
    return copy = Tensor::empty(values.shape(), values.dtype());
  });
  return rounds ? copy : values;
}

}  // namespace

Fp8State::Fp8State(const std::vector<Parameter>& weights, const Fp8Options& options)
    : options_(options) {
  for (const Parameter& weight : weights) {
    number_.emplace(weight.name(), std::ssize(names_));
    names_.push_back(weight.name());
  }
  const std::int64_t count = std::ssize(names_) * kFp8Roles;
  const float forward = largest_of(Fp8Format::e4m3), backward = largest_of(options.gradients);
  std::vector<float> limits;
  for (std::int64_t i = 0; i < std::ssize(names_); ++i) {
    limits.insert(limits.end(), {forward, forward, backward});
  }
  const CategoryScope category(Category::workspace);
  limits_ = Tensor::from(limits, {count});
  scales_ = Tensor::zeros({count}, DType::f32);
  largest_ = Tensor::zeros({count}, DType::f32);
  excess_ = Tensor::zeros({count}, DType::f32);
  history_ = Tensor::zeros({options.history, count}, DType::f32);
}

std::optional<Fp8State::Place> Fp8State::place(const Parameter& weight, Fp8Role role) const {
  const auto found = number_.find(weight.name());
  if (found == number_.end()) return std::nullopt;
  const std::int64_t at = found->second * kFp8Roles + static_cast<std::int64_t>(role);
  return Place{.format = role == Fp8Role::gradient ? options_.gradients : Fp8Format::e4m3,
               .scale = scales_.slice(at, at + 1),
               .largest = largest_.slice(at, at + 1)};
}

void Fp8State::end_step() {
  fp8_record(history_, largest_, excess_, scales_, limits_);
  fp8_scales(scales_, history_, limits_);
}

Fp8Cut Fp8State::cut_of(const std::vector<float>& excess) const {
  Fp8Cut cut;
  for (std::size_t i = 0; i < excess.size(); ++i) {
    if (!(excess[i] > 1.0f)) continue;
    ++cut.tensors;
    if (excess[i] <= cut.ratio) continue;
    cut.ratio = excess[i];
    cut.name = fmt::format("{}, {}", names_[i / kFp8Roles], kRoleNames[i % kFp8Roles]);
  }
  return cut;
}

void Fp8State::set_history(const std::vector<float>& values) {
  check(std::ssize(values) == history_.numel(),
        "a history of {} numbers; this model's has {}: {} steps of {} tensors", values.size(),
        history_.numel(), history_.size(0), history_.size(1));
  history_.copy_from(Tensor::from(values, history_.shape()));
  fp8_scales(scales_, history_, limits_);
}

Fp8Scope::Fp8Scope(Fp8State& state, Keeps keeps) {
  auto& [current, unread] = context().state<CurrentFp8>();
  previous_ = std::exchange(current, &state);
  previous_unread_ =
      std::exchange(unread, keeps == Keeps::largest ? Tensor() : Tensor::zeros({1}, DType::f32));
}

Fp8Scope::~Fp8Scope() {
  context().state<CurrentFp8>() = {previous_, previous_unread_};
}

Tensor fp8_factor(const JoinedParameters& weight, Fp8Role role, const Tensor& values) {
  return rounded_copy(weight, role, values, Category::activations);
}

void fp8_round_factor(const JoinedParameters& weight, Fp8Role role, const Tensor& values) {
  round_in_scope(weight, role, values, [&] { return values; });
}

Tensor weight_factor(const JoinedParameters& weight, DType dtype) {
  return rounded_copy(weight, Fp8Role::weight, weight.data_for(dtype), Category::workspace);
}

}  // namespace tessera
