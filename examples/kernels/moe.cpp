// Four tokens on their way to three experts and back.
//
// Run build/bin/kernels/moe. docs/kernels/moe.md walks through it.
#include <fmt/format.h>

#include <vector>

#include "kernels/dispatch/op.h"
#include "kernels/router/op.h"
#include "runtime/context.h"

using namespace tessera;

int main() {
  RankContext rank({.threads = 1});
  const ContextGuard guard(rank);

  const Tensor logits = Tensor::from(std::vector<float>{3, 0, 2,   //
                                                        1, 3, 0,   //
                                                        -1, 2, 2,  //
                                                        2, 0, 2},
                                     {4, 3});
  const Tensor weights = Tensor::empty({4, 2}, DType::f32);
  const Tensor experts = Tensor::empty({4, 2}, DType::i32);
  router_forward(weights, experts, logits, /*bias=*/{}, RouterWeights::normalized_softmax);

  const Tensor places = Tensor::empty({4, 2}, DType::i32), offsets = Tensor::empty({4}, DType::i32);
  dispatch_order(places, offsets, /*slots=*/{}, experts);

  // Token n is the number 10 n, so that each dispatched row shows its token.
  const Tensor x = Tensor::from(std::vector<float>{0, 10, 20, 30}, {4, 1});
  const Tensor rows = Tensor::empty({8, 1}, DType::f32), y = Tensor::empty({4, 1}, DType::f32);
  dispatch(rows, x, places);
  combine(y, rows, places, weights);

  fmt::print("token   experts   weights          places\n");
  for (std::size_t n = 0; n < 4; ++n) {
    const auto e = experts.to_vector<std::int32_t>(), p = places.to_vector<std::int32_t>();
    const auto w = weights.to_vector<float>();
    fmt::print("{:>5}   {} {}       {:.4f} {:.4f}    {} {}\n", n, e[2 * n], e[2 * n + 1], w[2 * n],
               w[2 * n + 1], p[2 * n], p[2 * n + 1]);
  }
  fmt::print("offsets          {}\n", fmt::join(offsets.to_vector<std::int32_t>(), " "));
  fmt::print("dispatched rows  {}\n", fmt::join(rows.to_vector<float>(), " "));
  fmt::print("combined         {:.4g}\n", fmt::join(y.to_vector<float>(), " "));
}
