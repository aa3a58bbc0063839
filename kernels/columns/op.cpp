#include "kernels/columns/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// `columns` lie in their tensor [N, ...], and `packed` is [N, count] in other memory.
void check_columns(std::string_view op, const Argument& packed, const Argument& tensor,
                   const Columns& columns) {
  check_on_one_device(op, {packed, tensor});
  check_rank(op, packed, 2);
  check_rank(op, tensor, 2);
  check(columns.first >= 0 && columns.count >= 0 &&
            columns.first + columns.count <= columns.tensor.size(1),
        "{}: columns [{}, {}) of {} {}; they must lie in the tensor", op, columns.first,
        columns.first + columns.count, tensor.name, describe(columns.tensor));
  check_shape(op, packed, {columns.tensor.size(0), columns.count});
  check_apart(op, packed, tensor);
}

}  // namespace

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
  check_same_floating(op, {{"y", y}, {"x", x.tensor}});
  check_columns(op, {"y", y}, {"x", x.tensor}, x);
  run_on<cpu::copy_columns, cuda::copy_columns>(y.device(), op, y, x);
}

void set_columns(const Columns& y, const Tensor& x) {
  constexpr std::string_view op = "set_columns";
  if (x.dtype() != DType::f32) check_same_floating(op, {{"y", y.tensor}, {"x", x}});
  check_columns(op, {"x", x}, {"y", y.tensor}, y);
  run_on<cpu::set_columns, cuda::set_columns>(x.device(), op, y, x);
}

}  // namespace tessera
