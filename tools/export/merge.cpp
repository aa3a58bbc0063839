#include "tools/export/merge.h"

#include <algorithm>

#include "kernels/add/op.h"
#include "kernels/cast/op.h"
#include "kernels/matmul/op.h"
#include "kernels/scale/op.h"
#include "models/peft.h"

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

AdapterMerge::AdapterMerge(const std::filesystem::path& folder, LanguageModel& model) {
  add_adapters(model, read_adapter(folder).options);
  factors_ = adapter_tensors(folder, parameters_of(model));
}

Tensor AdapterMerge::merged(const Parameter& weight, const Tensor& stored,
                            std::int64_t first) const {
  if (weight.adapter() == nullptr) return stored;
  const Tensor a = in_f32(factors_.at(weight.adapter()->a.name()));
  const Tensor b = in_f32(factors_.at(weight.adapter()->b.name()));
  const Tensor values = in_f32(stored).reshape({stored.numel()});
  const auto [inputs, outputs] = layer_size(weight);
  const std::int64_t size = inputs * outputs, last = first + stored.numel();
  for (std::int64_t e = first / size; e * size < last; ++e) {
    const Tensor more = addition(weight, matrix_of(a, e), matrix_of(b, e));
    const std::int64_t from = std::max(first, e * size), until = std::min(last, (e + 1) * size);
    const Tensor sum = values.slice(from - first, until - first);
    add(sum, sum, more.slice(from - e * size, until - e * size));
  }
  if (stored.dtype() == DType::f32) return values.reshape(stored.shape());
  const Tensor result = Tensor::empty_on_host(stored.shape(), stored.dtype());
  cast(result, values.reshape(stored.shape()));
  return result;
}

}  // namespace tessera
