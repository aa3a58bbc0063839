// A layer cut over four ranks in three ways that Tessera's strategies do not have.
//
// Run build/bin/beyond. docs/beyond.md walks through it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "examples/kernels/tensors.h"
#include "kernels/attention/op.h"
#include "kernels/linear/op.h"
#include "sharding/comm/threads/threads.h"

using namespace tessera;

namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kTokens = 64, kWidth = 32, kHidden = 128;

Tensor input() {
  return normal({kTokens, kWidth}, "x");
}
Tensor up(int layer) {
  return normal({kHidden, kWidth}, "up" + std::to_string(layer));
}
Tensor down(int layer) {
  return normal({kHidden, kWidth}, "down" + std::to_string(layer));
}

/// gelu(x up^T) down. Rows of both weights belong to hidden channels.
Tensor feed_forward(const Tensor& x, const Tensor& up, const Tensor& down) {
  const Shape hidden{x.size(0), up.size(0)};
  const Tensor pre = Tensor::empty(hidden, DType::f32), h = Tensor::empty(hidden, DType::f32);
  const Tensor y = Tensor::empty(x.shape(), DType::f32);
  linear_gelu_forward(h, pre, x, up, Transpose::yes, /*bias=*/{});
  linear_forward(y, h, down, Transpose::no, /*bias=*/{});
  return y;
}

/// The queries are the last ones of the tokens that have keys and values.
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto heads = [](const Tensor& x) {
    return heads_of(x.reshape({1, x.size(0), kWidth}), 0, /*heads=*/1, kWidth);
  };
  const Tensor o = Tensor::empty(q.shape(), DType::f32);
  const Tensor logsumexp = Tensor::empty({1, 1, q.size(0)}, DType::f32);
  attention_forward(heads(o), logsumexp, heads(q), heads(k), heads(v), /*scale=*/0.2f);
  return o;
}

/// A rank has a quarter of the hidden channels. Its result is a summand of the layer's.
Tensor tensor_parallel(Communicator& world) {
  const std::int64_t first = kHidden / kRanks * world.rank(), last = first + kHidden / kRanks;
  const Tensor y = feed_forward(input(), up(0).slice(first, last), down(0).slice(first, last));
  world.all_reduce({y}, context().compute_stream()).synchronize();
  return y;
}

/// Rank r has layer r, and sends its result to rank r + 1.
Tensor pipeline_parallel(Communicator& world) {
  const auto part_of = [&](int rank) {
    std::vector<std::int64_t> counts(kRanks, 0);
    counts[static_cast<std::size_t>(rank)] = kTokens * kWidth;
    return counts;
  };
  const Parts none{Tensor::empty({0}, DType::f32), std::vector<std::int64_t>(kRanks, 0)};
  Tensor x = input();
  for (int layer = 0; layer < kRanks; ++layer) {
    if (world.rank() == layer) x = feed_forward(x, up(layer), down(layer));
    if (layer + 1 == kRanks) break;
    const bool sends = world.rank() == layer, receives = world.rank() == layer + 1;
    world
        .all_to_all_parts(receives ? Parts{x, part_of(layer)} : none,
                          sends ? Parts{x, part_of(layer + 1)} : none, context().compute_stream())
        .synchronize();
  }
  return x;
}

/// A rank has a quarter of the tokens, and needs the keys and values of all before its own.
Tensor context_parallel(Communicator& world) {
  const std::int64_t first = kTokens / kRanks * world.rank(), last = first + kTokens / kRanks;
  const Tensor k = Tensor::empty({kTokens, kWidth}, DType::f32),
               v = Tensor::empty(k.shape(), DType::f32);
  k.slice(first, last).copy_from(normal({kTokens, kWidth}, "k").slice(first, last));
  v.slice(first, last).copy_from(normal({kTokens, kWidth}, "v").slice(first, last));
  world.all_gather({k, v}, context().compute_stream()).synchronize();
  return attend(input().slice(first, last), k.slice(0, last), v.slice(0, last));
}

/// Runs a layer on four ranks. Compares the result of the last rank with that of one rank.
void print(std::string_view name, const std::function<Tensor(Communicator&)>& cut,
           const std::function<Tensor()>& whole, std::int64_t formula) {
  std::array<std::int64_t, kRanks> sent{};
  std::string agreement;
  run_ranks({.ranks = kRanks, .threads = 1}, [&](Communicator& world) {
    const Tensor result = cut(world), expected = whole();
    sent[static_cast<std::size_t>(world.rank())] = world.bytes_sent();
    if (world.rank() + 1 < kRanks) return;
    const std::int64_t rows = result.size(0);
    const Tensor own = expected.slice(kTokens - rows, kTokens);
    const std::vector<float> a = own.to_vector<float>(), b = result.to_vector<float>();
    float difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      difference = std::max(difference, std::abs(a[i] - b[i]));
    }
    agreement = same_bits(own, result) ? "bit for bit" : difference < 1e-3f ? "to rounding" : "no";
  });
  fmt::print("{:<20} {:>14} {:>10}   {}\n", name, std::accumulate(sent.begin(), sent.end(), 0L),
             formula, agreement);
}

}  // namespace

int main() {
  const std::int64_t activation = 4 * kTokens * kWidth;
  fmt::print("bytes of all ranks           counted    formula   as on one rank\n");
  print(
      "tensor parallelism", tensor_parallel, [] { return feed_forward(input(), up(0), down(0)); },
      2 * (kRanks - 1) * activation);
  print(
      "pipeline parallelism", pipeline_parallel,
      [] {
        Tensor x = input();
        for (int layer = 0; layer < kRanks; ++layer) x = feed_forward(x, up(layer), down(layer));
        return x;
      },
      (kRanks - 1) * activation);
  print(
      "context parallelism", context_parallel,
      [] {
        return attend(input(), normal({kTokens, kWidth}, "k"), normal({kTokens, kWidth}, "v"));
      },
      2 * (kRanks - 1) * activation);
}
