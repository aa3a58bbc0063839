#include "kernels/round_sum/op.h"

#include "kernels/checks.h"

namespace tessera {

void round_sum(Out y, const Tensor& sums, const Tensor& bias, const Tensor& residual) {
  constexpr std::string_view op = "round_sum";
  check_on_one_device(op, {{"y", y}, {"sums", sums}});
  check_floating(op, {"y", y});
  check_dtype(op, {"sums", sums}, statistics_dtype(y.dtype()));
  check_shape(op, {"sums", sums}, y.shape());
  if (bias.defined()) {
    check_same_floating(op, {{"y", y}, {"bias", bias}});
    check_shape(op, {"bias", bias}, {y.size(-1)});
    check_apart(op, {"bias", bias}, {"y", y});
  }
  if (residual.defined()) {
    check_same_floating(op, {{"y", y}, {"residual", residual}});
    check_shape(op, {"residual", residual}, y.shape());
    check_same_or_apart(op, {"y", y}, {"residual", residual});
  }
  run_on<cpu::round_sum, cuda::round_sum>(y.device(), op, y, sums, bias, residual);
}

}  // namespace tessera
