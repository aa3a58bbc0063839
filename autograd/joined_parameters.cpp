#include "autograd/joined_parameters.h"

#include <algorithm>
#include <utility>

#include "autograd/neighbours.h"
#include "kernels/nf4/op.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// New memory with the shape of the join.
Tensor copy_for(DType dtype, const Shape& shape) {
  const CategoryScope category(Category::workspace);
  return Tensor::empty(shape, dtype);
}

/// Writes a part's values to its rows, in their dtype.
void write_values(const Parameter& part, const Tensor& rows) {
  const bool rounds = is_fp8(rows.dtype());
  if (part.packed()) {
    const Tensor unpacked = rounds ? copy_for(DType::bf16, rows.shape()) : rows;
    nf4_unpack(unpacked, part.data());
    if (rounds) part.round(rows, unpacked);
  } else if (part.data().dtype() == rows.dtype()) {
    rows.copy_from(part.data());
  } else {
    part.round(rows, part.data());
  }
}

/// f(part, the part's rows of `joined`) for every part.
template <typename F>
void for_each_part(const std::vector<Parameter>& parts, const Tensor& joined, const F& f) {
  std::int64_t begin = 0;
  for (const Parameter& part : parts) {
    const std::int64_t end = begin + part.held_shape()[0];
    f(part, joined.slice(begin, end).reshape(part.held_shape()));
    begin = end;
  }
}

}  // namespace

JoinedParameters::JoinedParameters(const Parameter& parameter) : parts_({parameter}) {}

JoinedParameters::JoinedParameters(std::vector<Parameter> parts) : parts_(std::move(parts)) {
  check(!parts_.empty(), "a join of no parameters");
  for (const Parameter& part : parts_) {
    check(part.defined() == defined(), "a join of parameters of which some are undefined");
    if (!defined()) continue;
    const Shape& first = parts_.front().shape();
    check(
        part.shape() == first.with(0, part.shape()[0]),
        "parameter '{}' of shape {} cannot be joined with '{}' of shape {}; extents but the first "
        "must be equal",
        part.name(), to_string(part.shape()), parts_.front().name(), to_string(first));
    part.set_first_of_join(parts_.front().name());
  }
}

bool JoinedParameters::trainable() const {
  return std::ranges::any_of(parts_, [](const Parameter& part) { return part.trainable(); });
}

Shape JoinedParameters::held_shape() const {
  std::int64_t rows = 0;
  for (const Parameter& part : parts_) rows += part.held_shape()[0];
  return parts_.front().held_shape().with(0, rows);
}

Tensor JoinedParameters::data() const {
  if (parts_.size() == 1) return parts_.front().data();
  std::vector<Tensor> tensors;
  for (const Parameter& part : parts_) tensors.push_back(part.data());
  if (Tensor all = joined_memory(tensors, held_shape()); all.defined()) return all;
  const Tensor copy = copy_for(tensors.front().dtype(), held_shape());
  for_each_part(parts_, copy,
                [](const Parameter& part, const Tensor& rows) { rows.copy_from(part.data()); });
  return copy;
}

Tensor JoinedParameters::data_for(DType dtype) const {
  const auto is_ready = [&](const Parameter& part) {
    return !part.packed() && (!is_fp8(dtype) || part.data().dtype() == dtype);
  };
  if (std::ranges::all_of(parts_, is_ready)) return data();
  const Tensor values = copy_for(dtype, held_shape());
  for_each_part(parts_, values, write_values);
  return values;
}

JoinedGradient::JoinedGradient(const JoinedParameters& parameters) : parts_(parameters.parts()) {
  if (!parameters.trainable()) return;
  std::vector<Tensor> gradients;
  bool all_trainable = true, any_written = false;
  for (const Parameter& part : parts_) {
    all_trainable &= part.trainable();
    if (!part.trainable()) continue;
    gradients.push_back(part.gradient());
    any_written |= part.has_gradient();
  }
  if (any_written) accumulate_ = Accumulate::yes;
  if (all_trainable) window_ = joined_memory(gradients, parameters.held_shape());
  copied_ = !window_.defined();
  if (copied_) window_ = copy_for(gradients.front().dtype(), parameters.held_shape());
  for_each_part(parts_, window_, [&](const Parameter& part, const Tensor& rows) {
    const bool adds = part.trainable() && part.next_contribution() == Accumulate::yes;
    if (accumulate_ == Accumulate::no) return;
    if (!adds) return rows.zero();
    if (copied_) rows.copy_from(part.gradient());
  });
}

void JoinedGradient::finish() const {
  if (!copied_) return;
  for_each_part(parts_, window_, [](const Parameter& part, const Tensor& rows) {
    if (part.trainable()) part.gradient().copy_from(rows);
  });
}

}  // namespace tessera
