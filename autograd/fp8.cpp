#include "autograd/fp8.h"

#include <algorithm>
#include <utility>

#include "autograd/context_axis.h"
#include "autograd/neighbours.h"
#include "autograd/variable.h"
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
/// The largest magnitudes of factors that no step has seen: the oldest numbers of a new history. Inputs have a scale
/// of 1; gradients of a mean over tokens are small.
constexpr float kGuesses[] = {448.0f, 1.0f, 0x1p-6f};

/// Whether a product reads the columns of an input and of a gradient with so many rows: the one for the weight's
/// gradient. Rows that travel between ranks, or are cut into leaves, stay rows.
bool gradient_reads_columns(const JoinedParameters& weight, const Tensor& rows) {
  if (!weight.trainable() || weight.parts().front().tensor_axis() != nullptr || token_leaves() > 1)
    return false;
  const Shape extents = weight.held_shape();
  return extents.rank() == 2 &&
         multiplies_fp8(rows.device(), {rows.size(0), extents[0], extents[1]});
}

/// Whether tensor ranks gather the rows of an input or a gradient before a product with the weight.
bool are_gathered(const JoinedParameters& weight, Fp8Role role) {
  const Parameter& first = weight.parts().front();
  const auto& axis = first.tensor_axis();
  if (axis == nullptr || axis->ranks() == 1 || !axis->shares_rows()) return false;
  return (role == Fp8Role::gradient) == (first.cut().divided == Divided::inputs);
}

/// Memory for a matrix in 8 bits, and its inverse scales. `parts`: of so many, in three dimensions.
struct Blocked {
  Tensor numbers, inverse;
  Blocked() = default;
  Blocked(std::int64_t rows, std::int64_t depth, DType format, Fp8Blocks blocks,
          std::int64_t parts = 1) {
    const Shape scales = fp8_scales_shape(blocks, rows, depth);
    const auto in_parts = [&](const Shape& one) {
      return parts == 1 ? one : Shape{parts, one[0], one[1]};
    };
    numbers = Tensor::empty(in_parts({rows, depth}), format);
    inverse = Tensor::empty(in_parts(scales), DType::f32);
  }
};

/// Rows [N, C] of bf16 as rows, columns or both, with scales of blocks.
Factor in_blocks(const Tensor& values, DType format, Fp8Blocks blocks, bool rows, bool columns) {
  const std::int64_t N = values.size(0), C = values.size(1);
  const std::int64_t leaves = blocks == Fp8Blocks::vectors ? token_leaves() : 1;
  const Blocked y = rows ? Blocked(N, C, format, blocks) : Blocked();
  const Blocked yt = columns ? Blocked(C, N / leaves, format, blocks, leaves) : Blocked();
  fp8_quantize_blocks(y.numbers, y.inverse, yt.numbers, yt.inverse, values, blocks);
  Factor factor(y.numbers, y.inverse, yt.numbers);
  factor.inverse_of_columns = yt.inverse;
  factor.blocks = blocks;
  return factor;
}

/// Where the numbers of this factor are. None without a scope, and for weights that have none.
std::optional<Fp8State::Place> place_of(const JoinedParameters& weight, Fp8Role role) {
  const Fp8State* const state = context().state<CurrentFp8>().state;
  return state == nullptr ? std::nullopt : state->place(weight.parts().front(), role);
}

/// The memory of a weight that is neither packed nor in 8 bits, if it is one piece. Else undefined.
Tensor unrounded(const JoinedParameters& weight) {
  std::vector<Tensor> tensors;
  for (const Parameter& part : weight.parts()) {
    if (part.packed() || is_fp8(part.data().dtype())) return {};
    tensors.push_back(part.data());
  }
  return joined_memory(tensors, weight.held_shape());
}

}  // namespace

Fp8State::Fp8State(const std::vector<Parameter>& weights, const Fp8Options& options)
    : options_(options) {
  for (const Parameter& weight : weights) {
    number_.emplace(weight.name(), std::ssize(names_));
    names_.push_back(weight.name());
  }
  const bool delays = options.scales == Fp8Scales::tensor;
  const std::int64_t count = delays ? std::ssize(names_) * kFp8Roles : 0;
  const float forward = largest_of(DType::e4m3), backward = largest_of(options.gradients);
  std::vector<float> limits, guesses(static_cast<std::size_t>((options.history - 1) * count));
  for (std::int64_t i = 0; i < count / kFp8Roles; ++i) {
    limits.insert(limits.end(), {forward, forward, backward});
    guesses.insert(guesses.end(), std::begin(kGuesses), std::end(kGuesses));
  }
  const CategoryScope category(Category::workspace);
  limits_ = Tensor::from(limits, {count});
  scales_ = Tensor::zeros({count}, DType::f32);
  inverses_ = Tensor::zeros({count}, DType::f32);
  largest_ = Tensor::zeros({count}, DType::f32);
  excess_ = Tensor::zeros({count}, DType::f32);
  history_ = Tensor::from(guesses, {options.history, count});
  if (!delays) return;
  fp8_scales(scales_, inverses_, history_, limits_);
  for (const Parameter& weight : weights) {
    const Place to = *place(weight, Fp8Role::weight);
    weight.set_rounding({to.scale, to.largest});
  }
}

std::optional<Fp8State::Place> Fp8State::place(const Parameter& weight, Fp8Role role) const {
  const auto found = number_.find(weight.first_of_join());
  if (found == number_.end()) return std::nullopt;
  const DType format = role == Fp8Role::gradient ? options_.gradients : DType::e4m3;
  if (!has_history()) return Place{.format = format};
  const std::int64_t at = found->second * kFp8Roles + static_cast<std::int64_t>(role);
  return Place{.format = format,
               .scale = scales_.slice(at, at + 1),
               .inverse = inverses_.slice(at, at + 1),
               .largest = largest_.slice(at, at + 1)};
}

void Fp8State::end_step() {
  fp8_record(history_, largest_, excess_, scales_, limits_);
  fp8_scales(scales_, inverses_, history_, limits_);
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

void Fp8State::set_history(std::vector<float> values) {
  check(std::ssize(values) == history_.numel(),
        "a history of {} numbers; this model's has {}: {} steps of {} tensors", values.size(),
        history_.numel(), history_.size(0), history_.size(1));
  const auto count = static_cast<std::size_t>(history_.size(1)), oldest = values.size() - count;
  for (std::size_t i = 0; i < count; ++i) {
    float most = 0.0f;
    for (std::size_t at = i; at < values.size(); at += count) most = std::max(most, values[at]);
    if (most == 0.0f) values[oldest + i] = kGuesses[i % kFp8Roles];
  }
  history_.copy_from(Tensor::from(values, history_.shape()));
  fp8_scales(scales_, inverses_, history_, limits_);
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

bool multiplies_in_fp8(const JoinedParameters& weight) {
  return place_of(weight, Fp8Role::input).has_value();
}

Factor fp8_factor(const JoinedParameters& weight, Fp8Role role, const Tensor& values) {
  const auto place = place_of(weight, role);
  if (!place) return values;
  // Without a graph an input has no gradient of the weight.
  const bool is_used_again = role == Fp8Role::gradient || gradients_enabled();
  const CategoryScope scope(Category::activations);
  if (place->has_blocks()) {
    if (are_gathered(weight, role)) return values;
    return in_blocks(values, place->format, Fp8Blocks::vectors, /*rows=*/true,
                     /*columns=*/is_used_again && weight.trainable());
  }
  Factor factor(Tensor::empty(values.shape(), place->format), place->inverse);
  if (is_used_again && gradient_reads_columns(weight, values)) {
    factor.columns = Tensor::empty({values.size(1), values.size(0)}, place->format);
  }
  const Tensor& unread = context().state<CurrentFp8>().unread;
  fp8_quantize(factor.values, factor.columns, values, place->scale,
               unread.defined() ? unread : place->largest);
  return factor;
}

Factor gathered_fp8_factor(const JoinedParameters& weight, Fp8Role role, const Tensor& values,
                           Transpose columns) {
  const auto place = place_of(weight, role);
  if (!place || !place->has_blocks()) return values;
  const CategoryScope scope(Category::activations);
  const bool by_columns = columns == Transpose::yes;
  return in_blocks(values, place->format, Fp8Blocks::vectors, !by_columns, by_columns);
}

Factor weight_factor(const JoinedParameters& weight, DType dtype, Transpose transpose) {
  const auto place = place_of(weight, Fp8Role::weight);
  if (place && place->has_blocks()) {
    const Tensor all = weight.data_for(dtype);
    const CategoryScope scope(Category::workspace);
    const bool columns =
        transpose == Transpose::no &&
        multiplies_fp8(all.device(), {all.size(0), all.size(1)}, Fp8Blocks::squares);
    return in_blocks(all, place->format, Fp8Blocks::squares, !columns, columns);
  }
  if (const Tensor all = place ? unrounded(weight) : Tensor(); all.defined()) {
    const CategoryScope scope(Category::workspace);
    Tensor rows, columns;
    if (transpose == Transpose::no && multiplies_fp8(all.device(), {all.size(0), all.size(1)})) {
      columns = Tensor::empty({all.size(1), all.size(0)}, place->format);
    } else {
      rows = Tensor::empty(all.shape(), place->format);
    }
    fp8_quantize(rows, columns, all, place->scale, place->largest);
    return {rows, place->inverse, columns};
  }
  const Tensor values = weight.data_for(place ? place->format : dtype);
  if (!is_fp8(values.dtype())) return values;
  check(place.has_value(), "a product with '{}' has 8-bit factors; it needs an Fp8Scope",
        weight.parts().front().name());
  return {values, place->inverse};
}

}  // namespace tessera
