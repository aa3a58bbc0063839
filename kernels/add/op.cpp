#include "kernels/add/op.h"

#include "kernels/checks.h"

namespace tessera {

void add(Out y, const Tensor& a, const Tensor& b) {
  check_on_one_device("add", {{"y", y}, {"a", a}, {"b", b}});
  check_same_floating("add", {{"y", y}, {"a", a}, {"b", b}});
  check_same_shape("add", {"y", y}, {"a", a});
  check_same_shape("add", {"y", y}, {"b", b});
  check_same_or_apart("add", {"y", y}, {"a", a});
  check_same_or_apart("add", {"y", y}, {"b", b});
  if (y.device().is_cpu()) return cpu::add(y, a, b);
  if constexpr (kHasCuda) return cuda::add(y, a, b);
  fail_no_kernel("add", y.device());
}

void add_all(std::span<const Tensor> sums, std::span<const Tensor> addends) {
  check_pairs("add_all", {"sums", sums}, {"addends", addends});
  if (sums.empty()) return;
  const Tensor& first = sums.front();
  check_floating("add_all", {"sums[0]", first});
  check_same_dtype_or_f32("add_all", {"sums[0]", first}, {"addends[0]", addends.front()});
  if (first.device().is_cpu()) return cpu::add_all(sums, addends);
  if constexpr (kHasCuda) return cuda::add_all(sums, addends);
  fail_no_kernel("add_all", first.device());
}

}  // namespace tessera
