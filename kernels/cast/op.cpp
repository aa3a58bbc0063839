#include "kernels/cast/op.h"

#include "kernels/checks.h"
#include "runtime/category.h"

namespace tessera {
namespace {

void dispatch(std::string_view op, std::span<const Tensor> ys, std::span<const Tensor> xs) {
  const Device device = ys.front().device();
  run_on<cpu::cast_all, cuda::cast_all>(device, op, ys, xs);
}

}  // namespace

void cast(Out y, const Tensor& x) {
  check_on_one_device("cast", {{"y", y}, {"x", x}});
  check_floating("cast", {"y", y});
  check_floating("cast", {"x", x});
  check_same_shape("cast", {"y", y}, {"x", x});
  check_apart("cast", {"y", y}, {"x", x});
  dispatch("cast", {&y, 1}, {&x, 1});
}

void cast_all(std::span<const Tensor> ys, std::span<const Tensor> xs) {
  check_pairs("cast_all", {"ys", ys}, {"xs", xs});
  if (ys.empty()) return;
  check_floating("cast_all", {"ys[0]", ys[0]});
  check_floating("cast_all", {"xs[0]", xs[0]});
  dispatch("cast_all", ys, xs);
}

Tensor widened(const Tensor& x) {
  if (size_of(x.dtype()) != 2) return x;
  const CategoryScope scope(Category::workspace);
  const Tensor wide = Tensor::empty(x.shape(), DType::f32);
  cast(wide, x);
  return wide;
}

}  // namespace tessera
