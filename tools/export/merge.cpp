#include "tools/export/merge.h"

#include <algorithm>

#include "kernels/add/op.h"
#include "kernels/cast/op.h"
#include "kernels/matmul/op.h"
#include "kernels/nf4/op.h"
#include "kernels/nf4/pack.h"
#include "kernels/scale/op.h"
#include "models/peft.h"
#include "models/shard_file.h"
#include "runtime/integer.h"

namespace tessera {
namespace {

/// A copy in f32.
Tensor in_f32(const Tensor& stored) {
  const Tensor values = Tensor::empty_on_host(stored.shape(), DType::f32);
  if (stored.dtype() == DType::f32) {
    values.copy_from(stored);
  } else {
    cast(values, stored);
  }
  return values;
}

/// Matrix e of a stack; a single matrix itself.
Tensor matrix_of(const Tensor& factor, std::int64_t e) {
  if (factor.rank() == 2) return factor;
  return factor.slice(e, e + 1).reshape({factor.size(1), factor.size(2)});
}

/// scaling B A, as the weight is stored.
Tensor addition(const Parameter& weight, const Tensor& a, const Tensor& b) {
  const bool out_in = weight_layout(weight) == WeightLayout::out_in;
  const auto [inputs, outputs] = layer_size(weight);
  const Tensor sum =
      Tensor::empty_on_host(out_in ? Shape{outputs, inputs} : Shape{inputs, outputs}, DType::f32);
  if (out_in) {
    matmul(sum, b, a);
  } else {
    matmul(sum, a, b, Transpose::yes, Transpose::yes);
  }
  scale(sum, sum, weight.adapter()->scaling);
  return sum.reshape({sum.numel()});
}

}  // namespace

AdapterMerge::AdapterMerge(const std::filesystem::path& folder, LanguageModel& model,
                           const WeightFiles& base)
    : base_(base) {
  add_adapters(model, read_adapter(folder).options);
  factors_ = adapter_tensors(folder, parameters_of(model));
}

Tensor AdapterMerge::unpacked(const Parameter& weight, std::int64_t first,
                              std::int64_t count) const {
  // Whole matrices: the scales of each have one mean.
  const Shape& shape = weight.shape();
  const std::int64_t size = shape[-2] * shape[-1], begin = first / size;
  const Shape matrices = {ceil_div(first + count, size) - begin, shape[-2], shape[-1]};
  const Shape packed_shape = nf4_packed_shape(matrices);
  const Tensor packed = Tensor::empty_on_host(packed_shape, DType::u8);
  const NamedTensors stored = base_.find(weight);
  nf4_pack(packed, {.first = begin * packed_shape[1] * packed_shape[2]}, shape,
           [&](const Tensor& values, std::int64_t at) { copy_elements(values, stored, at); });
  const Tensor values = Tensor::empty_on_host(matrices, DType::f32);
  nf4_unpack(values, packed);
  const std::int64_t skipped = first - begin * size;
  return values.reshape({values.numel()}).slice(skipped, skipped + count);
}

void AdapterMerge::add_factors(const Tensor& values, const Parameter& weight,
                               std::int64_t first) const {
  const Tensor a = in_f32(factors_.at(weight.adapter()->a.name()));
  const Tensor b = in_f32(factors_.at(weight.adapter()->b.name()));
  const auto [inputs, outputs] = layer_size(weight);
  const std::int64_t size = inputs * outputs, last = first + values.numel();
  for (std::int64_t e = first / size; e * size < last; ++e) {
    const Tensor more = addition(weight, matrix_of(a, e), matrix_of(b, e));
    const std::int64_t from = std::max(first, e * size), until = std::min(last, (e + 1) * size);
    const Tensor sum = values.slice(from - first, until - first);
    add(sum, sum, more.slice(from - e * size, until - e * size));
  }
}

Tensor AdapterMerge::merged(const Parameter& weight, const Tensor& stored,
                            std::int64_t first) const {
  if (weight.adapter() == nullptr && !weight.packed()) return stored;
  const Tensor values = weight.packed() ? unpacked(weight, first, stored.numel())
                                        : in_f32(stored).reshape({stored.numel()});
  if (weight.adapter() != nullptr) add_factors(values, weight, first);
  if (stored.dtype() == DType::f32) return values.reshape(stored.shape());
  const Tensor result = Tensor::empty_on_host(stored.shape(), stored.dtype());
  cast(result, values.reshape(stored.shape()));
  return result;
}

}  // namespace tessera
