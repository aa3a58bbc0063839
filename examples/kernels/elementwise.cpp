// GELU where its usual formula cancels, and RoPE at equal distances.
//
// Run build/bin/kernels/elementwise. docs/kernels/elementwise.md walks through it.
#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "examples/kernels/tensors.h"
#include "kernels/gelu/op.h"
#include "kernels/rope/op.h"
#include "runtime/context.h"

using namespace tessera;

namespace {

/// The formula with tanh, in f32 or f64.
template <typename T>
T gelu_by_tanh(T x) {
  const T u = std::sqrt(T(2 / M_PI)) * (x + T(0.044715) * x * x * x);
  return x / 2 * (1 + std::tanh(u));
}

/// The product of one query and one key of 64 channels at these positions.
float score(std::int64_t query_position, std::int64_t key_position) {
  static const RopeTable table =
      rope_table(/*positions=*/256, rope_frequencies(64, /*theta=*/10'000), RopePairs::half_split);
  const auto rotated = [](std::string_view name, std::int64_t position) {
    const Tensor x = normal({1, 1, 64}, name);
    rope_forward(heads_of(x, 0, /*heads=*/1, 64), table, {.first = position});
    return x.to_vector<float>();
  };
  const std::vector<float> q = rotated("query", query_position), k = rotated("key", key_position);
  return std::inner_product(q.begin(), q.end(), k.begin(), 0.0f);
}

}  // namespace

int main() {
  RankContext rank({.threads = 1});
  const ContextGuard guard(rank);

  const std::vector<float> xs{-1, -4, -6};
  const Tensor y = Tensor::empty({3}, DType::f32);
  gelu_forward(y, Tensor::from(xs, {3}));
  fmt::print("gelu     by tanh, f32      by tanh, f64      here, f32\n");
  for (std::size_t i = 0; i < xs.size(); ++i) {
    fmt::print("x = {:.0f} {:>16.1e} {:>17.1e} {:>14.1e}\n", xs[i], gelu_by_tanh(xs[i]),
               gelu_by_tanh<double>(xs[i]), y.to_vector<float>()[i]);
  }

  fmt::print("\na query and a key    score\n");
  for (const auto& [query, key] : {std::pair{3, 1}, {103, 101}, {203, 201}, {103, 1}}) {
    fmt::print("at {:3} and {:3}      {:>8.3f}\n", query, key, score(query, key));
  }
}
