#include "kernels/reduce/op.h"

#include "kernels/checks.h"

namespace tessera {

void sum(Out result, const Tensor& x) {
  constexpr std::string_view op = "sum";
  check_on_one_device(op, {{"result", result}, {"x", x}});
  check_floating(op, {"x", x});
  check_shape(op, {"result", result}, {1});
  check_dtype(op, {"result", result}, statistics_dtype(x.dtype()));
  if (x.device().is_cpu()) return cpu::sum(result, x);
  if constexpr (kHasCuda) return cuda::sum(result, x);
  fail_no_kernel(op, x.device());
}

}  // namespace tessera
