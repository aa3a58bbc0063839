// The order in which the gradient of an embedding adds the rows of one id.
//
// Run build/bin/kernels/embedding. docs/kernels/embedding.md walks through it.
#include <fmt/format.h>

#include <numeric>
#include <vector>

#include "kernels/embedding/op.h"
#include "runtime/context.h"

using namespace tessera;

namespace {

/// The gradient of row 7, whose id occurs at every position.
float gradient_on(int threads, const std::vector<float>& dy) {
  RankContext rank({.threads = threads});
  const ContextGuard guard(rank);
  const auto count = static_cast<std::int64_t>(dy.size());
  const Tensor table = Tensor::empty({10, 1}, DType::f32);
  const Tensor ids = Tensor::from(std::vector<std::int32_t>(dy.size(), 7), {count});
  embedding_backward(table, Tensor::from(dy, {count, 1}), ids, Accumulate::no);
  return table.to_vector<float>()[7];
}

}  // namespace

int main() {
  // 2^24 and 199 ones. In f32 2^24 + 1 is 2^24 again.
  std::vector<float> dy(200, 1.0f);
  dy[0] = 0x1p24f;
  fmt::print("one after another  {:.0f}\n", std::accumulate(dy.begin(), dy.end(), 0.0f));
  for (const int threads : {1, 2, 3}) {
    fmt::print("here, {} thread{}    {:.0f}\n", threads, threads == 1 ? " " : "s",
               gradient_on(threads, dy));
  }
  fmt::print("exactly            {:.0f}\n", std::accumulate(dy.begin(), dy.end(), 0.0));
}
