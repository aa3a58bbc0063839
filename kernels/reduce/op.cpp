#include "kernels/reduce/op.h"

#include "kernels/checks.h"

namespace tessera {

void sum(Out result, const Tensor& x) {
  constexpr std::string_view op = "sum";
  check_on_one_device(op, {{"result", result}, {"x", x}});
  check_floating(op, {"x", x});
  check_shape(op, {"result", result}, {1});
  check_dtype(op, {"result", result}, statistics_dtype(x.dtype()));
  run_on<cpu::sum, cuda::sum>(x.device(), op, result, x);
}

}  // namespace tessera
