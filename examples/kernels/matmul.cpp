// The causes that change bits of a product.
//
// Run build/bin/kernels/matmul. docs/kernels/matmul.md walks through it.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "examples/kernels/tensors.h"
#include "kernels/gelu/op.h"
#include "kernels/linear/op.h"
#include "kernels/matmul/op.h"
#include "runtime/context.h"

using namespace tessera;

namespace {

constexpr std::int64_t kRows = 200, kDepth = 768, kColumns = 256;

Tensor product(int threads, const Tensor& x, const Tensor& w) {
  RankContext rank({.threads = threads});
  const ContextGuard guard(rank);
  const Tensor y = Tensor::empty({x.size(0), kColumns}, DType::f32);
  matmul(y, x, w);
  return y;
}

void print(std::string_view question, bool same) {
  fmt::print("{:<50} {}\n", question, yes_or_no(same));
}

}  // namespace

int main() {
  RankContext rank({.threads = 1});
  const ContextGuard guard(rank);
  const Tensor x = normal({kRows, kDepth}, "x"), w = normal({kDepth, kColumns}, "w");
  const Tensor y = product(1, x, w);

  fmt::print("same bits as the product of {} rows on one thread?\n", kRows);
  print("on 3 threads", same_bits(product(3, x, w), y));
  print("row 17 alone", same_bits(product(1, x.slice(17, 18), w), y.slice(17, 18)));

  // The product with its depths in the opposite order: the same numbers, added from the other end.
  std::vector<float> xr = x.to_vector<float>(), wr = w.to_vector<float>();
  for (auto row = xr.begin(); row != xr.end(); row += kDepth) std::reverse(row, row + kDepth);
  for (std::int64_t k = 0; k < kDepth / 2; ++k) {
    std::swap_ranges(wr.begin() + k * kColumns, wr.begin() + (k + 1) * kColumns,
                     wr.end() - (k + 1) * kColumns);
  }
  print("with the depths in the opposite order",
        same_bits(product(1, Tensor::from(xr, x.shape()), Tensor::from(wr, w.shape())), y));

  const Tensor gelu = Tensor::empty(y.shape(), DType::f32),
               pre = Tensor::empty(y.shape(), DType::f32);
  const Tensor fused = Tensor::empty(y.shape(), DType::f32);
  gelu_forward(gelu, y);
  linear_gelu_forward(fused, pre, x, w, Transpose::no, /*bias=*/{});
  print("and then gelu, as an epilogue", same_bits(fused, gelu));
}
