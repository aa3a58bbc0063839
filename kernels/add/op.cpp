#include "kernels/add/op.h"

#include "kernels/checks.h"

namespace tessera {

void add(Out y, const Tensor& a, const Tensor& b) {
  check_alike("add", {{"y", y}, {"a", a}, {"b", b}});
  check_same_or_apart("add", {"y", y}, {"a", a});
  check_same_or_apart("add", {"y", y}, {"b", b});
  run_on<cpu::add, cuda::add>(y.device(), "add", y, a, b);
}

void add_all(std::span<const Tensor> sums, std::span<const Tensor> addends) {
  check_pairs("add_all", {"sums", sums}, {"addends", addends});
  if (sums.empty()) return;
  const Tensor& first = sums.front();
  check_floating("add_all", {"sums[0]", first});
  check_same_dtype_or_f32("add_all", {"sums[0]", first}, {"addends[0]", addends.front()});
  run_on<cpu::add_all, cuda::add_all>(first.device(), "add_all", sums, addends);
}

}  // namespace tessera
