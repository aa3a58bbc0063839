#include <fmt/format.h>

#include "kernels/cross_entropy/gradient_rows.h"
#include "kernels/cross_entropy/op.h"
#include "kernels/cross_entropy/rows.h"
#include "kernels/linear_cross_entropy/op.h"
#include "runtime/backends.h"
#include "runtime/context.h"
#include "runtime/integer.h"
#include "tools/bench/cases/cases.h"
#include "tools/measure/noise.h"

namespace tessera {
namespace {

/// The language model's head and loss with all gradients: three products. The baseline's products have
/// the vocabulary rounded up to a multiple of 64, because cuBLASLt is slow for odd leading dimensions.
void add_head(CaseList& list) {
  const std::int64_t N = list.rows, V = list.model.vocab_size, C = list.model.width;
  const std::int64_t padded = round_up(V, 64);
  const DType dtype = list.dtype;
  const double bytes = 2 * list.bytes(N, C) + list.bytes(V, C) + CaseList::bytes(V, C, DType::f32);
  const std::vector<MatmulShape> products = {
      {.m = N, .n = padded, .k = C, .transpose_b = Transpose::yes},
      {.m = N, .n = C, .k = padded},
      {.m = padded, .n = C, .k = N, .transpose_a = Transpose::yes}};
  const double share = static_cast<double>(V) / static_cast<double>(padded);
  list.compute_bound(
      "linear_cross_entropy", fmt::format("{} x {} x {}", N, V, C), bytes, share, products, [=] {
        return [=, loss = Tensor::empty({1}, DType::f32), x = noise({N, C}, dtype),
                dx = Tensor::empty({N, C}, dtype), weight = noise({V, C}, dtype),
                dweight = Tensor::empty({V, C}, DType::f32), targets = random_ids(N, V)] {
          linear_cross_entropy(loss, dx, dweight, x, weight, targets, 1.0 / static_cast<double>(N),
                               Accumulate::no);
        };
      });
}

/// The loss between the products of linear_cross_entropy: losses of a chunk of logits, which become
/// their gradients, in one pass. On the CPU they are f32.
void add_chunk(CaseList& list) {
  const bool on_cpu = context().device().is_cpu();
  const DType dtype = on_cpu ? DType::f32 : list.dtype;
  const std::int64_t N =
      std::min(list.rows, on_cpu ? cpu::kCrossEntropyChunk : cuda::kCrossEntropyChunk);
  const std::int64_t V = list.model.vocab_size, stride = on_cpu ? V : round_up(V, 64);
  const auto run = [=](const Tensor& logits, const Tensor& losses, const Tensor& targets) {
    const float scale = 1.0f / static_cast<float>(N);
    if constexpr (kHasCuda) {
      if (!on_cpu) {
        const cuda::LogitRows rows{logits, V, targets, 0, kIgnoreIndex};
        return cuda::losses_and_gradients_of_rows(losses, rows, scale);
      }
    }
    cpu::losses_and_gradients(losses, logits, logits, targets, scale, Tensor(), kIgnoreIndex);
  };
  list.memory_bound(
      "cross_entropy_chunk", fmt::format("{} x {}", N, V), 2 * CaseList::bytes(N, V, dtype), [=] {
        return [=, logits = noise({N, stride}, dtype), losses = Tensor::empty({N}, DType::f32),
                targets = random_ids(N, V)] { run(logits, losses, targets); };
      });
}

struct Operands {
  Tensor logits, dlogits, loss, logsumexp, dloss, targets;
};

}  // namespace

void add_loss_cases(CaseList& list) {
  add_head(list);
  add_chunk(list);
  // One chunk of logits of linear_cross_entropy on a GPU.
  const std::int64_t N = std::min(list.rows, cuda::kCrossEntropyChunk), V = list.model.vocab_size;
  const auto make = [N, V, dtype = list.dtype] {
    return Operands{.logits = noise({N, V}, dtype),
                    .dlogits = Tensor::empty({N, V}, dtype),
                    .loss = Tensor::empty({N}, DType::f32),
                    .logsumexp = Tensor::full({N}, DType::f32, 11.0),
                    .dloss = Tensor::full({N}, DType::f32, 1.0),
                    .targets = random_ids(N, V)};
  };
  const std::string shape = fmt::format("{} x {}", N, V);
  list.memory_bound("cross_entropy_forward", shape, list.bytes(N, V), [=] {
    return [t = make()] { cross_entropy_forward(t.loss, t.logsumexp, t.logits, t.targets); };
  });
  list.memory_bound("cross_entropy_backward", shape, 2 * list.bytes(N, V), [=] {
    return [t = make()] {
      cross_entropy_backward(t.dlogits, t.dloss, t.logits, t.logsumexp, t.targets);
    };
  });
}

}  // namespace tessera
