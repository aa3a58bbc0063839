// The memory of attention, and the bits of packed documents.
//
// Run build/bin/kernels/attention. docs/kernels/attention.md walks through it.
#include <fmt/format.h>

#include <vector>

#include "examples/kernels/tensors.h"
#include "kernels/attention/op.h"
#include "runtime/context.h"

using namespace tessera;

namespace {

constexpr std::int64_t kSize = 64;  // channels of the one head

/// Attention over rows [first, last) of q, k and v packed side by side. Keys before `first_key` are
/// hidden, if it is defined.
Tensor attend(const Tensor& qkv, std::int64_t first, std::int64_t last, const Tensor& first_key) {
  const std::int64_t tokens = last - first;
  const Tensor rows = qkv.slice(first, last).reshape({1, tokens, 3 * kSize});
  const Tensor o = Tensor::empty({1, tokens, kSize}, DType::f32);
  const Tensor logsumexp = Tensor::empty({1, 1, tokens}, DType::f32);
  attention_forward(heads_of(o, 0, 1, kSize), logsumexp, heads_of(rows, 0, 1, kSize),
                    heads_of(rows, kSize, 1, kSize), heads_of(rows, 2 * kSize, 1, kSize),
                    /*scale=*/0.125f, first_key);
  return o.reshape({tokens, kSize});
}

}  // namespace

int main() {
  RankContext rank({.threads = 1});
  const ContextGuard guard(rank);
  Allocator& allocator = rank.allocator();

  fmt::print("tokens   bytes of P   bytes of the call: o, logsumexp and scratch\n");
  for (const std::int64_t tokens : {256, 1024, 4096}) {
    const Tensor qkv = normal({tokens, 3 * kSize}, "qkv");
    const std::int64_t before = allocator.account().total.current;
    allocator.reset_peaks();
    attend(qkv, 0, tokens, {});
    fmt::print("{:>6} {:>12} {:>11}\n", tokens, 4 * tokens * tokens,
               allocator.account().total.peak - before);
  }

  // Documents of 6 and 4 tokens in one row, and each by itself.
  const Tensor qkv = normal({10, 3 * kSize}, "qkv");
  const Tensor first_key =
      Tensor::from(std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 6, 6, 6, 6}, {1, 10});
  const Tensor packed = attend(qkv, 0, 10, first_key);
  const bool same = same_bits(packed.slice(0, 6), attend(qkv, 0, 6, {})) &&
                    same_bits(packed.slice(6, 10), attend(qkv, 6, 10, {}));
  fmt::print("packed documents have the bits of each alone: {}\n", yes_or_no(same));
}
