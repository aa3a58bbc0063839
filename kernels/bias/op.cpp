#include "kernels/bias/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

void check_row_vector(std::string_view op, const Argument& vector, const Argument& rows) {
  if (rows.tensor.rank() < 1)
    fail("{}: {} is {}; it must have at least 1 dimension", op, rows.name, describe(rows.tensor));
  check_shape(op, vector, {rows.tensor.size(-1)});
  check_apart(op, vector, rows);
}

}  // namespace

void bias_forward(Out y, const Tensor& bias) {
  check_on_one_device("bias_forward", {{"y", y}, {"bias", bias}});
  check_same_floating("bias_forward", {{"y", y}, {"bias", bias}});
  check_row_vector("bias_forward", {"bias", bias}, {"y", y});
  run_on<cpu::bias_forward, cuda::bias_forward>(y.device(), "bias_forward", y, bias);
}

void bias_backward(Out dbias, const Tensor& dy, Accumulate accumulate) {
  check_on_one_device("bias_backward", {{"dbias", dbias}, {"dy", dy}});
  check_floating("bias_backward", {"dy", dy});
  check_same_dtype_or_f32("bias_backward", {"dbias", dbias}, {"dy", dy});
  check_row_vector("bias_backward", {"dbias", dbias}, {"dy", dy});
  run_on<cpu::bias_backward, cuda::bias_backward>(dy.device(), "bias_backward", dbias, dy,
                                                  accumulate);
}

}  // namespace tessera
