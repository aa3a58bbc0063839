#include "kernels/muon/op.h"

#include <algorithm>

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

constexpr std::string_view kDirection = "muon_direction", kApply = "muon_apply";

/// f32 or bf16: the dtypes in which matrices are orthogonalized.
void check_exchanged(std::string_view op, const Argument& x) {
  const DType dtype = x.tensor.dtype();
  check(dtype == DType::f32 || dtype == DType::bf16, "{}: {} is {}; its dtype must be f32 or bf16",
        op, x.name, describe(x.tensor));
}

void check_scale(std::string_view op, const Tensor& gradient_scale, const Argument& first) {
  if (!gradient_scale.defined()) return;
  check_on_one_device(op, {{"gradient_scale", gradient_scale}, first});
  check_shape(op, {"gradient_scale", gradient_scale}, {1});
  check_dtype(op, {"gradient_scale", gradient_scale}, DType::f32);
}

/// An f32 tensor that is written, and another of as many elements.
void check_pair(std::string_view op, const Argument& written, const Argument& other) {
  check_on_one_device(op, {written, other});
  check_dtype(op, written, DType::f32);
  check_same_count(op, written, other);
  check_apart(op, written, other);
}

}  // namespace

void muon_direction(std::span<const MuonDirection> ranges, const MuonDirectionSettings& settings,
                    const Tensor& gradient_scale) {
  if (ranges.empty()) return;
  check(0.0 <= settings.momentum && settings.momentum < 1.0,
        "{}: the momentum is {}; it must be at least 0 and below 1", kDirection, settings.momentum);
  const Argument first{"the first m", ranges.front().m};
  const Tensor* of_first = nullptr;
  for (const MuonDirection& range : ranges) {
    const Argument m{"m", range.m}, gradient{"gradient", range.gradient};
    check_pair(kDirection, m, gradient);
    check_same_dtype_or_f32(kDirection, m, gradient);
    check_on_one_device(kDirection, {m, first});
    check_same_dtype(kDirection, gradient, {"the first gradient", ranges.front().gradient});
    if (!range.direction.defined()) continue;
    const Argument direction{"direction", range.direction};
    check_pair(kDirection, m, direction);
    check_exchanged(kDirection, direction);
    check_apart(kDirection, direction, gradient);
    if (of_first == nullptr) of_first = &range.direction;
    check_same_dtype(kDirection, direction, {"the first direction", *of_first});
  }
  check_scale(kDirection, gradient_scale, first);
  run_on<cpu::muon_direction, cuda::muon_direction>(ranges.front().m.device(), kDirection, ranges,
                                                    settings, gradient_scale);
}

void muon_apply(std::span<const MuonUpdate> ranges, const MuonUpdateSettings& settings,
                const Tensor& gradient_scale) {
  if (ranges.empty()) return;
  const Argument first{"the first p", ranges.front().p};
  for (const MuonUpdate& range : ranges) {
    const Argument p{"p", range.p}, update{"update", range.update};
    check_pair(kApply, p, update);
    check_exchanged(kApply, update);
    check_on_one_device(kApply, {p, first});
    check_same_dtype(kApply, update, {"the first update", ranges.front().update});
  }
  check_scale(kApply, gradient_scale, first);
  run_on<cpu::muon_apply, cuda::muon_apply>(ranges.front().p.device(), kApply, ranges, settings,
                                            gradient_scale);
}

}  // namespace tessera
