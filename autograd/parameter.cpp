#include "autograd/parameter.h"

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>
#include <utility>

#include "autograd/adapter.h"
#include "kernels/nf4/op.h"
#include "kernels/nf4/pack.h"
#include "runtime/check.h"
#include "runtime/describe.h"
#include "runtime/host_pieces.h"
#include "runtime/random.h"
#include "runtime/threads.h"

namespace tessera {

struct Parameter::State {
  std::string name;
  Shape shape;
  Initializer initializer;
  bool trainable = true;
  bool stacked = false;
  std::shared_ptr<ExpertExchange> exchange;
  Cut cut;
  std::shared_ptr<TensorAxis> tensor_axis;
  Shape held;  // of the memory
  std::shared_ptr<const Adapter> adapter;
  bool in_adapter = false;
  bool packed = false;
  bool rounded = false;
  Fp8Rounding rounding;
  std::string first_of_join;
  Tensor data;
  std::vector<Tensor> gradients;
  bool has_gradient = false;
  std::vector<Tensor> leaf_gradients;
};

Parameter::Parameter(std::string name, const Shape& shape, Initializer initializer)
    : state_(std::make_shared<State>()) {
  state_->name = state_->first_of_join = std::move(name);
  state_->shape = state_->held = shape;
  state_->initializer = initializer;
}

const std::string& Parameter::name() const {
  return state_->name;
}
const Shape& Parameter::shape() const {
  return state_->shape;
}
bool Parameter::trainable() const {
  return defined() && state_->trainable;
}
void Parameter::set_trainable(bool trainable) const {
  state_->trainable = trainable;
}

void Parameter::set_stacked() const {
  state_->stacked = true;
}
bool Parameter::stacked() const {
  return state_->stacked;
}

void Parameter::share_out(std::shared_ptr<ExpertExchange> exchange) const {
  check(stacked() || exchange == nullptr, "parameter '{}' has no experts to share out", name());
  state_->exchange = std::move(exchange);
  state_->held = stored_shape();
  if (this->exchange() != nullptr) {
    state_->held = stored_shape().with(0, shape()[0] / this->exchange()->ranks());
  }
}

const std::shared_ptr<ExpertExchange>& Parameter::exchange() const {
  return state_->exchange;
}

void Parameter::set_cut(const Cut& cut) const {
  state_->cut = cut;
}
const Cut& Parameter::cut() const {
  return state_->cut;
}

void Parameter::share_out(std::shared_ptr<TensorAxis> axis, const Shape& held) const {
  state_->tensor_axis = std::move(axis);
  state_->held = held;
}
const std::shared_ptr<TensorAxis>& Parameter::tensor_axis() const {
  return state_->tensor_axis;
}
Shape Parameter::held_shape() const {
  return packed() ? state_->held.with(-1, shape()[-1]) : state_->held;
}

void Parameter::set_packed() const {
  check(!trainable(), "parameter '{}' is trained, so it cannot be packed", name());
  state_->packed = true;
  state_->held = stored_shape();
}
bool Parameter::packed() const {
  return state_->packed;
}
Shape Parameter::stored_shape() const {
  return packed() ? nf4_packed_shape(shape()) : shape();
}

void Parameter::set_rounded() const {
  state_->rounded = true;
}
bool Parameter::rounded() const {
  return state_->rounded;
}
void Parameter::set_rounding(const Fp8Rounding& rounding) const {
  state_->rounding = rounding;
}
const Fp8Rounding& Parameter::rounding() const {
  return state_->rounding;
}
void Parameter::round(Out numbers, const Tensor& values) const {
  const auto& [scale, largest] = rounding();
  check(scale.defined(), "parameter '{}' has no scale to round it to {}", name(),
        name_of(numbers.dtype()));
  fp8_quantize(numbers, {}, values.reshape(numbers.shape()), scale, largest);
}

const std::string& Parameter::first_of_join() const {
  return state_->first_of_join;
}
void Parameter::set_first_of_join(const std::string& name) const {
  state_->first_of_join = name;
}

void Parameter::set_adapter(std::shared_ptr<const Adapter> adapter) const {
  state_->adapter = std::move(adapter);
  for (const Parameter& factor : {this->adapter()->a, this->adapter()->b}) {
    factor.state_->in_adapter = true;
  }
}
const std::shared_ptr<const Adapter>& Parameter::adapter() const {
  return state_->adapter;
}
bool Parameter::in_adapter() const {
  return state_->in_adapter;
}

const Tensor& Parameter::data() const {
  check(defined(), "an undefined Parameter was used");
  check(is_open(), "parameter '{}' was used while its window is closed", name());
  return state_->data;
}

bool Parameter::is_open() const {
  return state_->data.defined();
}

void Parameter::open(const Tensor& data) const {
  check(data.shape() == state_->held, "parameter '{}' has shape {}; its window cannot be {}",
        name(), to_string(state_->held), describe(data));
  state_->data = data;
}

void Parameter::close() const {
  state_->data = {};
}

const Tensor& Parameter::gradient() const {
  return gradients().front();
}

const std::vector<Tensor>& Parameter::gradients() const {
  check(!state_->gradients.empty(),
        "the gradient of parameter '{}' was used while its window is closed", name());
  return state_->gradients;
}

void Parameter::open_gradients(std::vector<Tensor> gradients) const {
  for (const Tensor& gradient : gradients) {
    check(gradient.shape() == held_shape(),
          "the gradient of parameter '{}' of shape {} cannot be {}", name(),
          to_string(held_shape()), describe(gradient));
  }
  state_->gradients = std::move(gradients);
}

void Parameter::close_gradient() const {
  state_->gradients.clear();
}
bool Parameter::has_gradient() const {
  return state_->has_gradient;
}
void Parameter::reset_gradient() const {
  state_->has_gradient = false;
}

Accumulate Parameter::next_contribution() const {
  const bool first = !state_->has_gradient;
  state_->has_gradient = true;
  return first ? Accumulate::no : Accumulate::yes;
}

void Parameter::leave_leaf_gradients(std::vector<Tensor> gradients) const {
  state_->leaf_gradients = std::move(gradients);
}

std::vector<Tensor> Parameter::take_leaf_gradients() const {
  return std::exchange(state_->leaf_gradients, {});
}

namespace {

/// Fills values with those of a parameter's elements from `first` on.
template <typename T>
void fill_initial(std::span<T> values, std::int64_t first, const Initializer& initializer,
                  const RandomStream& random, std::int64_t row_elements) {
  // A 16-bit value is the rounded f32 value: the same bits as a copy of an f32 master.
  using Exact = std::conditional_t<std::is_same_v<T, double>, double, float>;
  using Kind = Initializer::Kind;
  const Kind kind = initializer.kind;
  const auto value_at = [&](std::int64_t i, float normal) {
    if (initializer.zero_row && i / row_elements == *initializer.zero_row) return 0.0;
    if (kind == Kind::constant) return initializer.value;
    if (kind == Kind::normal) return initializer.value * normal;
    return initializer.value * (2.0 * random.uniform(static_cast<std::uint64_t>(i)) - 1.0);
  };
  std::array<float, 256> normals{};
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    const std::int64_t at = i % 256;
    if (at == 0 && kind == Kind::normal) {
      const auto count =
          static_cast<std::size_t>(std::min<std::int64_t>(256, std::ssize(values) - i));
      fill_normal(std::span(normals).first(count), random, static_cast<std::uint64_t>(first + i));
    }
    values[static_cast<std::size_t>(i)] =
        static_cast<T>(static_cast<Exact>(value_at(first + i, normals[at])));
  }
}

}  // namespace

void Parameter::initialize(const Tensor& part, const Elements& elements, std::uint64_t seed) const {
  const RandomStream random(seed, name());
  const std::int64_t row_elements = numel() / shape()[0];
  const auto fill = [&](const Tensor& piece, const Elements& of) {
    const bool floating = visit_floating(piece.dtype(), [&]<typename T>(T) {
      T* const values = piece.data<T>();
      parallel_for(piece.numel(), std::int64_t{1} << 14, [&](std::int64_t from, std::int64_t to) {
        of.from(from).for_each_run(
            to - from, [&](std::int64_t first, std::int64_t offset, std::int64_t n) {
              fill_initial(std::span(values + from + offset, static_cast<std::size_t>(n)), first,
                           state_->initializer, random, row_elements);
            });
      });
    });
    check(floating, "parameter '{}' is initialized in a floating dtype, not {}", name(),
          name_of(piece.dtype()));
  };
  if (packed()) {
    return nf4_pack(part, elements, shape(), [&](const Tensor& values, std::int64_t first) {
      fill(values, {.first = first});
    });
  }
  write_from_host(
      part, [&](const Tensor& piece, std::int64_t begin) { fill(piece, elements.from(begin)); });
}

}  // namespace tessera
