// The rules of all kernels, in numbers: 16-bit storage, the order of sums, checks of arguments.
//
// Run build/bin/kernels/rules. docs/kernels.md walks through it.
#include <fmt/format.h>

#include "examples/kernels/tensors.h"
#include "kernels/add/op.h"
#include "kernels/cast/op.h"
#include "kernels/reduce/op.h"
#include "runtime/context.h"
#include "runtime/error.h"

using namespace tessera;

namespace {

/// Counts to 3,000 by ones, in numbers of this dtype.
double count(DType dtype) {
  const Tensor total = Tensor::zeros({1}, dtype), one = Tensor::empty({1}, dtype);
  cast(one, Tensor::full({1}, DType::f32, 1.0));
  for (int i = 0; i < 3000; ++i) add(total, total, one);
  const Tensor wide = Tensor::empty({1}, DType::f32);
  cast(wide, total);
  return wide.item<float>();
}

float sum_on(int threads) {
  RankContext rank({.threads = threads});
  const ContextGuard guard(rank);
  const Tensor result = Tensor::empty({1}, DType::f32);
  sum(result, normal({200'000}, "summands"));
  return result.item<float>();
}

}  // namespace

int main() {
  const bool same = sum_on(1) == sum_on(2) && sum_on(1) == sum_on(3);
  RankContext rank({.threads = 1});
  const ContextGuard guard(rank);
  fmt::print("3,000 ones: {} in bf16, {} in f16, {} in f32\n", count(DType::bf16),
             count(DType::f16), count(DType::f32));
  fmt::print("a sum of 200,000 numbers has the same bits on 1, 2 and 3 threads: {}\n",
             yes_or_no(same));
  try {
    add(Tensor::empty({2, 3}, DType::f32), normal({2, 3}, "a"), normal({3, 2}, "b"));
  } catch (const Error& error) {
    fmt::print("{}\n", error.what());
  }
}
