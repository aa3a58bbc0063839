#include "kernels/adamw/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"

namespace tessera {
namespace {

constexpr std::string_view kOp = "adamw";

void check_settings(const AdamWSettings& s) {
  check(s.step >= 1, "{}: the step is {}; steps are counted from 1", kOp, s.step);
  check(0.0 <= s.beta1 && s.beta1 < 1.0, "{}: beta1 is {}; it must be at least 0 and below 1", kOp,
        s.beta1);
  check(0.0 <= s.beta2 && s.beta2 < 1.0, "{}: beta2 is {}; it must be at least 0 and below 1", kOp,
        s.beta2);
}

}  // namespace

void adamw(Out p, Out m, Out v, const Tensor& gradient, const AdamWSettings& settings) {
  check_on_one_device(kOp, {{"p", p}, {"m", m}, {"v", v}, {"gradient", gradient}});
  const Argument arguments[] = {{"p", p}, {"m", m}, {"v", v}, {"gradient", gradient}};
  for (const Argument& argument : arguments) {
    check(argument.tensor.numel() == p.numel(),
          "{}: p is {} and {} is {}; their element counts must be equal", kOp, describe(p),
          argument.name, describe(argument.tensor));
  }
  for (int output = 0; output < 3; ++output) {
    check_dtype(kOp, arguments[output], DType::f32);
    for (int other = output + 1; other < 4; ++other) {
      check_apart(kOp, arguments[output], arguments[other]);
    }
  }
  check_same_dtype_or_f32(kOp, {"p", p}, {"gradient", gradient});
  check_settings(settings);
  if (p.device().is_cpu()) return cpu::adamw(p, m, v, gradient, settings);
  fail_no_kernel(kOp, p.device());
}

}  // namespace tessera
