// The loss of a token that the model is sure of, and the memory of the loss head by its chunks.
//
// Run build/bin/kernels/loss. docs/kernels/loss.md walks through it.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "examples/kernels/tensors.h"
#include "kernels/cross_entropy/op.h"
#include "kernels/linear_cross_entropy/op.h"
#include "runtime/context.h"

using namespace tessera;

namespace {

constexpr std::int64_t kTokens = 2048, kWidth = 32, kWords = 1000;

void print_head(std::int64_t chunk) {
  const Tensor x = normal({kTokens, kWidth}, "x"), weight = normal({kWords, kWidth}, "weight");
  const Tensor targets = Tensor::from(std::vector<std::int32_t>(kTokens, 5), {kTokens});
  const Tensor loss = Tensor::empty({1}, DType::f32), dx = Tensor::empty(x.shape(), DType::f32);
  const Tensor dweight = Tensor::empty(weight.shape(), DType::f32);
  Allocator& allocator = context().allocator();
  allocator.reset_peaks();
  linear_cross_entropy(loss, dx, dweight, x, weight, targets, 1.0 / kTokens, Accumulate::no,
                       kIgnoreIndex, chunk);
  fmt::print("{:>5} {:>15} {:>15} {:>10.3f}\n", chunk, 4 * chunk * kWords,
             allocator.account()[Category::workspace].peak, loss.item<float>());
}

}  // namespace

int main() {
  RankContext rank({.threads = 1});
  const ContextGuard guard(rank);

  const float target = 20, other = 6;
  const Tensor loss = Tensor::empty({1}, DType::f32), logsumexp = Tensor::empty({1}, DType::f32);
  cross_entropy_forward(loss, logsumexp, Tensor::from(std::vector{target, other}, {1, 2}),
                        Tensor::from(std::vector<std::int32_t>{0}, {1}));
  const float naive = std::log(std::exp(target) + std::exp(other)) - target;
  fmt::print("logits 20 and 6: the loss is {:.1e}; log(sum) - 20 in f32 is {:.1e}\n\n",
             loss.item<float>(), naive);

  fmt::print("chunk   its logits, f32   workspace       loss\n");
  for (const std::int64_t chunk : {256, 512, 1024, 2048}) print_head(chunk);
}
