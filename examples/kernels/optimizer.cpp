// AdamW's first step, its bits by the cut of a parameter, and a norm that no order changes.
//
// Run build/bin/kernels/optimizer. docs/kernels/optimizer.md walks through it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "examples/kernels/tensors.h"
#include "kernels/adamw/op.h"
#include "kernels/gradient_norm/op.h"
#include "runtime/context.h"

using namespace tessera;

namespace {

/// The parameter after one update, which takes it in pieces of `piece` elements.
Tensor updated(const Tensor& start, const Tensor& gradient, std::int64_t piece, double rate) {
  const Tensor p = start.clone(), m = Tensor::zeros(p.shape(), DType::f32);
  const Tensor v = Tensor::zeros(p.shape(), DType::f32);
  std::vector<AdamWTensors> pieces;
  for (std::int64_t first = 0; first < p.numel(); first += piece) {
    const std::int64_t last = std::min(first + piece, p.numel());
    pieces.push_back({.p = p.slice(first, last),
                      .m = m.slice(first, last),
                      .v = v.slice(first, last),
                      .gradient = gradient.slice(first, last)});
  }
  adamw(pieces, {.learning_rate = rate});
  return p;
}

double norm_of(std::span<const Tensor> tensors) {
  const GradientNorm norm = GradientNorm::empty();
  sum_of_squares(norm, tensors);
  return norm.value();
}

}  // namespace

int main() {
  RankContext rank({.threads = 1});
  const ContextGuard guard(rank);

  const Tensor gradient = Tensor::from(std::vector<float>{1000, 1, 0.001f}, {3});
  const Tensor after = updated(Tensor::full({3}, DType::f32, 1), gradient, 3, /*rate=*/0.1);
  fmt::print("from 1, with gradients 1000, 1, 0.001: {:.4f}\n",
             fmt::join(after.to_vector<float>(), " "));

  const Tensor p = normal({5000}, "p"), g = normal({5000}, "g");
  const bool same = same_bits(updated(p, g, 5000, 1e-3), updated(p, g, 777, 1e-3));
  fmt::print("a parameter in pieces has the bits of the whole: {}\n\n", yes_or_no(same));

  // The squares of 4096, 1 and 1 are 2^24, 1 and 1.
  const float a = 0x1p24f, b = 1, c = 1;
  fmt::print("sum of squares in f32: ({} + {}) + {} = {}, {} + ({} + {}) = {}\n", a, b, c,
             (a + b) + c, a, b, c, a + (b + c));
  const Tensor whole = Tensor::from(std::vector<float>{4096, 1, 1}, {3});
  fmt::print(
      "norm, squared: {} of one tensor, {} of three\n", std::pow(norm_of(std::vector{whole}), 2),
      std::pow(norm_of(std::vector{whole.slice(2, 3), whole.slice(0, 1), whole.slice(1, 2)}), 2));
}
