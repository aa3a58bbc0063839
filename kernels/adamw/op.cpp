#include "kernels/adamw/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

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

/// f32, bf16 or f16.
void check_narrow(const Argument& x) {
  check_floating(kOp, x);
  check(x.tensor.dtype() != DType::f64, "{}: {} is {}; its dtype must be f32, bf16 or f16", kOp,
        x.name, describe(x.tensor));
}

void check_copy(const AdamWTensors& t, const Argument& copy) {
  check_on_one_device(kOp, {{"p", t.p}, copy});
  if (copy.tensor.dtype() == DType::e4m3) {
    check_dtype(kOp, {"p", t.p}, DType::f32);
    for (const Argument& one :
         {Argument{"scale", t.to_8_bits.scale}, {"largest", t.to_8_bits.largest}}) {
      check_on_one_device(kOp, {copy, one});
      check_shape(kOp, one, {1});
      check_dtype(kOp, one, DType::f32);
    }
  } else {
    check_narrow(copy);
  }
  check_same_count(kOp, {"p", t.p}, copy);
  for (const Argument& other :
       {Argument{"p", t.p}, {"m", t.m}, {"v", t.v}, {"gradient", t.gradient}}) {
    check_apart(kOp, copy, other);
  }
}

void check_tensors(const AdamWTensors& t) {
  check_on_one_device(kOp, {{"p", t.p}, {"m", t.m}, {"v", t.v}, {"gradient", t.gradient}});
  const Argument p{"p", t.p}, m{"m", t.m}, v{"v", t.v}, gradient{"gradient", t.gradient};
  for (const Argument& stored : {p, m}) {
    const DType dtype = stored.tensor.dtype();
    check(dtype == DType::f32 || dtype == DType::bf16,
          "{}: {} is {}; its dtype must be f32 or bf16", kOp, stored.name, describe(stored.tensor));
  }
  check_same_dtype(kOp, v, m);
  check_narrow(gradient);
  for (const Argument& other : {m, v, gradient}) {
    check_same_count(kOp, p, other);
    check_apart(kOp, p, other);
  }
  for (const Argument& other : {v, gradient}) check_apart(kOp, m, other);
  check_apart(kOp, v, gradient);
  if (t.copy.defined()) check_copy(t, {"copy", t.copy});
}

}  // namespace

void adamw(std::span<const AdamWTensors> parameters, const AdamWSettings& settings,
           const Tensor& gradient_scale) {
  check_settings(settings);
  if (parameters.empty()) return;
  const AdamWTensors& first = parameters.front();
  for (const AdamWTensors& tensors : parameters) {
    check_tensors(tensors);
    check_on_one_device(kOp, {{"p", tensors.p}, {"the first p", first.p}});
    check_same_dtype(kOp, {"p", tensors.p}, {"the first p", first.p});
    check_same_dtype(kOp, {"m", tensors.m}, {"the first m", first.m});
    check_same_dtype(kOp, {"gradient", tensors.gradient}, {"the first gradient", first.gradient});
  }
  if (gradient_scale.defined()) {
    check_on_one_device(kOp, {{"gradient_scale", gradient_scale}, {"p", first.p}});
    check_shape(kOp, {"gradient_scale", gradient_scale}, {1});
    check_dtype(kOp, {"gradient_scale", gradient_scale}, DType::f32);
  }
  run_on<cpu::adamw, cuda::adamw>(first.p.device(), kOp, parameters, settings, gradient_scale);
}

}  // namespace tessera
