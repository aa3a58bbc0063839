#include "kernels/matmul/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// The shape of op(x): its last two extents swapped if transposed.
Shape used_shape(const Tensor& x, Transpose transpose) {
  if (transpose == Transpose::no) return x.shape();
  return x.shape().with(-2, x.size(-1)).with(-1, x.size(-2));
}

void check_shapes(const Tensor& c, const Shape& a, const Shape& b) {
  const bool ranks =
      (c.rank() == 2 || c.rank() == 3) && a.rank() == c.rank() && b.rank() == c.rank();
  const bool batches = ranks && (c.rank() == 2 || (a[0] == b[0] && c.size(0) == a[0]));
  if (batches && a[-1] == b[-2] && c.size(-2) == a[-2] && c.size(-1) == b[-1]) return;
  fail(
      "matmul: op(a) {} times op(b) {} does not give c {}; they must be [M, K], [K, N] and "
      "[M, N], or all three with the same batch dimension in front",
      to_string(a), to_string(b), describe(c));
}

}  // namespace

void matmul(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a, Transpose transpose_b,
            Accumulate accumulate) {
  check_on_one_device("matmul", {{"c", c}, {"a", a}, {"b", b}});
  check_same_floating("matmul", {{"a", a}, {"b", b}});
  const bool narrows = size_of(c.dtype()) < size_of(a.dtype());
  const Argument from{"a", a}, to{"c", c};
  check_same_dtype_or_f32("matmul", narrows ? from : to, narrows ? to : from);
  if (a.rank() < 2 || b.rank() < 2)
    fail("matmul: a is {} and b is {}; both must be matrices", describe(a), describe(b));
  check_shapes(c, used_shape(a, transpose_a), used_shape(b, transpose_b));
  check_apart("matmul", {"c", c}, {"a", a});
  check_apart("matmul", {"c", c}, {"b", b});
  run_on<cpu::matmul, cuda::matmul>(c.device(), "matmul", c, a, b, transpose_a, transpose_b,
                                    accumulate);
}

}  // namespace tessera
