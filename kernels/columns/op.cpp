#include "kernels/columns/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {

Columns all_columns(const Tensor& tensor) {
  check(tensor.rank() == 2, "all_columns: the tensor is {}; it must be [N, F]", describe(tensor));
  return {tensor, 0, tensor.size(1)};
}

Columns first_half(const Tensor& tensor) {
  check(tensor.rank() == 2 && tensor.size(1) % 2 == 0,
        "first_half: the tensor is {}; it must be [N, 2F]", describe(tensor));
  return {tensor, 0, tensor.size(1) / 2};
}

Columns second_half(const Tensor& tensor) {
  check(tensor.rank() == 2 && tensor.size(1) % 2 == 0,
        "second_half: the tensor is {}; it must be [N, 2F]", describe(tensor));
  return {tensor, tensor.size(1) / 2, tensor.size(1) / 2};
}

void copy_columns(Out y, const Columns& x) {
  constexpr std::string_view op = "copy_columns";
  check_on_one_device(op, {{"y", y}, {"x", x.tensor}});
  check_same_floating(op, {{"y", y}, {"x", x.tensor}});
  check_rank(op, {"y", y}, 2);
  check_rank(op, {"x", x.tensor}, 2);
  check(x.first >= 0 && x.count >= 0 && x.first + x.count <= x.tensor.size(1),
        "{}: columns [{}, {}) of x {}; they must lie in the tensor", op, x.first, x.first + x.count,
        describe(x.tensor));
  check_shape(op, {"y", y}, {x.tensor.size(0), x.count});
  check_apart(op, {"y", y}, {"x", x.tensor});
  run_on<cpu::copy_columns, cuda::copy_columns>(y.device(), op, y, x);
}

}  // namespace tessera
