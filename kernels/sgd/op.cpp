#include "kernels/sgd/op.h"

#include "kernels/checks.h"

namespace tessera {
namespace {

constexpr std::string_view op = "sgd";

void check_pair(const Argument& output, const Argument& other) {
  check_dtype(op, output, DType::f32);
  check_same_count(op, output, other);
  check_apart(op, output, other);
}

void check_tensors(const SgdTensors& t, bool momentum) {
  check_on_one_device(op, {{"p", t.p}, {"gradient", t.gradient}});
  check_pair({"p", t.p}, {"gradient", t.gradient});
  check_same_dtype_or_f32(op, {"p", t.p}, {"gradient", t.gradient});
  if (!momentum) return;
  check_on_one_device(op, {{"p", t.p}, {"b", t.b}});
  check_pair({"b", t.b}, {"gradient", t.gradient});
  check_apart(op, {"b", t.b}, {"p", t.p});
}

}  // namespace

void sgd(std::span<const SgdTensors> parameters, const SgdSettings& settings,
         const Tensor& gradient_scale) {
  if (parameters.empty()) return;
  const SgdTensors& first = parameters.front();
  for (const SgdTensors& tensors : parameters) {
    check_tensors(tensors, settings.momentum != 0.0);
    check_on_one_device(op, {{"p", tensors.p}, {"the first p", first.p}});
    check_same_dtype(op, {"gradient", tensors.gradient}, {"the first gradient", first.gradient});
  }
  if (gradient_scale.defined()) {
    check_on_one_device(op, {{"gradient_scale", gradient_scale}, {"p", first.p}});
    check_shape(op, {"gradient_scale", gradient_scale}, {1});
    check_dtype(op, {"gradient_scale", gradient_scale}, DType::f32);
  }
  run_on<cpu::sgd, cuda::sgd>(first.p.device(), op, parameters, settings, gradient_scale);
}

}  // namespace tessera
