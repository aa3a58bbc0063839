#include "kernels/sgd/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"

namespace tessera {
namespace {

constexpr std::string_view op = "sgd";

void check_pair(const Argument& output, const Argument& other) {
  check_dtype(op, output, DType::f32);
  check(output.tensor.numel() == other.tensor.numel(),
        "{}: {} is {} and {} is {}; their element counts must be equal", op, output.name,
        describe(output.tensor), other.name, describe(other.tensor));
  check_apart(op, output, other);
}

}  // namespace

void sgd(Out p, Out b, const Tensor& gradient, const SgdSettings& settings) {
  check_on_one_device(op, {{"p", p}, {"gradient", gradient}});
  check_pair({"p", p}, {"gradient", gradient});
  check_same_dtype_or_f32(op, {"p", p}, {"gradient", gradient});
  if (settings.momentum != 0.0) {
    check_on_one_device(op, {{"p", p}, {"b", b}});
    check_pair({"b", b}, {"gradient", gradient});
    check_apart(op, {"b", b}, {"p", p});
  }
  if (p.device().is_cpu()) return cpu::sgd(p, b, gradient, settings);
  fail_no_kernel(op, p.device());
}

}  // namespace tessera
