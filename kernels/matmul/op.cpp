#include "kernels/matmul/op.h"

#include "kernels/checks.h"
#include "kernels/matmul/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// The shape of op(x): its last two extents swapped if transposed.
Shape used_shape(const Tensor& x, Transpose transpose) {
  if (transpose == Transpose::no) return x.shape();
  return x.shape().with(-2, x.size(-1)).with(-1, x.size(-2));
}

void check_shapes(std::string_view op, const Tensor& c, const Shape& a, const Shape& b) {
  const bool ranks =
      (c.rank() == 2 || c.rank() == 3) && a.rank() == c.rank() && b.rank() == c.rank();
  const bool batches = ranks && (c.rank() == 2 || (a[0] == b[0] && c.size(0) == a[0]));
  if (batches && a[-1] == b[-2] && c.size(-2) == a[-2] && c.size(-1) == b[-1]) return;
  fail(
      "{}: op(a) {} times op(b) {} does not give c {}; they must be [M, K], [K, N] and [M, N], or "
      "all three with the same batch dimension in front",
      op, to_string(a), to_string(b), describe(c));
}

}  // namespace

std::int64_t check_product(std::string_view op, const Tensor& c, const Tensor& a, const Tensor& b,
                           Transpose transpose_a, Transpose transpose_b) {
  check_on_one_device(op, {{"c", c}, {"a", a}, {"b", b}});
  check_same_floating(op, {{"a", a}, {"b", b}});
  const bool narrows = size_of(c.dtype()) < size_of(a.dtype());
  const Argument from{"a", a}, to{"c", c};
  check_same_dtype_or_f32(op, narrows ? from : to, narrows ? to : from);
  if (a.rank() < 2 || b.rank() < 2)
    fail("{}: a is {} and b is {}; both must be matrices", op, describe(a), describe(b));
  const Shape used = used_shape(a, transpose_a);
  check_shapes(op, c, used, used_shape(b, transpose_b));
  check_apart(op, {"c", c}, {"a", a});
  check_apart(op, {"c", c}, {"b", b});
  return used[-1];
}

void matmul(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a, Transpose transpose_b,
            Accumulate accumulate) {
  check_product("matmul", c, a, b, transpose_a, transpose_b);
  run_on<cpu::matmul, cuda::matmul>(c.device(), "matmul", c, a, b, transpose_a, transpose_b,
                                    accumulate);
}

}  // namespace tessera
