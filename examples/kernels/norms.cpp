// A variance in two passes and in one, and the two directions that a norm's gradient loses.
//
// Run build/bin/kernels/norms. docs/kernels/norms.md walks through it.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "examples/kernels/tensors.h"
#include "kernels/layer_norm/op.h"
#include "runtime/context.h"

using namespace tessera;

namespace {

/// E[x^2] - m^2 in f32.
float variance_in_one_pass(const std::vector<float>& row) {
  float sum = 0, squares = 0;
  for (const float x : row) {
    sum += x;
    squares += x * x;
  }
  const auto count = static_cast<float>(row.size());
  return squares / count - (sum / count) * (sum / count);
}

}  // namespace

int main() {
  RankContext rank({.threads = 1});
  const ContextGuard guard(rank);
  const Tensor weight = Tensor::full({4}, DType::f32, 1), bias = Tensor::zeros({4}, DType::f32);
  const Tensor y = Tensor::empty({1, 4}, DType::f32);
  const Tensor mean = Tensor::empty({1}, DType::f32), rstd = Tensor::empty({1}, DType::f32);

  for (const std::vector<float>& row :
       {std::vector<float>{1, 2, 3, 4}, {9999, 9999, 10001, 10001}}) {
    layer_norm_forward(y, mean, rstd, Tensor::from(row, {1, 4}), weight, bias, /*epsilon=*/0);
    fmt::print("{:>5} {:>5} {:>5} {:>5}   variance in one pass {:.2f}, here {:.2f}; y = {:.3f}\n",
               row[0], row[1], row[2], row[3], variance_in_one_pass(row),
               1 / (rstd.item<float>() * rstd.item<float>()), fmt::join(y.to_vector<float>(), " "));
  }

  const Tensor x = normal({1, 4}, "x"), dy = normal({1, 4}, "dy");
  const Tensor dx = Tensor::empty({1, 4}, DType::f32);
  layer_norm_forward(y, mean, rstd, x, weight, bias, /*epsilon=*/0);
  layer_norm_backward(dx, {}, {}, dy, x, weight, mean, rstd, Accumulate::no);
  float along_ones = 0, along_xhat = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const float gradient = dx.to_vector<float>()[i];
    along_ones += gradient;
    along_xhat += gradient * y.to_vector<float>()[i];  // weight 1 and bias 0: y is xhat
  }
  fmt::print("dx = {:.3f}; along the constant vector {:.4f}, along xhat {:.4f}\n",
             fmt::join(dx.to_vector<float>(), " "), std::abs(along_ones), std::abs(along_xhat));
}
