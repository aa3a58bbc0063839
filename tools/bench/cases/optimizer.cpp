// The steps after backward, on the tensors of one block: masters, gradients and moments.
#include <fmt/format.h>

#include "kernels/adamw/op.h"
#include "kernels/gradient_norm/op.h"
#include "tools/bench/cases/cases.h"
#include "tools/measure/noise.h"

namespace tessera {
namespace {

/// Sizes of a block's tensors: two norms, the packed query, key and value, the projections, and the
/// feed-forward's two layers, each with a bias.
std::vector<std::int64_t> block_of(const TransformerShape& m) {
  const std::int64_t qkv = (m.heads + 2 * m.kv_heads) * m.head_size;
  return {m.width,
          m.width,
          m.width,
          m.width,
          m.width * qkv,
          qkv,
          m.width * m.width,
          m.width,
          m.width * m.mlp_width,
          m.mlp_width,
          m.width * m.mlp_width,
          m.width};
}

std::vector<Tensor> tensors(const std::vector<std::int64_t>& sizes) {
  std::vector<Tensor> all;
  for (const std::int64_t size : sizes) all.push_back(noise({size}, DType::f32));
  return all;
}

/// Parameters with their moments in these dtypes, gradients in f32, and a copy in bf16 if asked
/// for.
std::vector<AdamWTensors> parameters_of(const std::vector<std::int64_t>& sizes, DType kept,
                                        bool copied) {
  std::vector<AdamWTensors> all;
  for (const std::int64_t size : sizes) {
    all.push_back({.p = noise({size}, kept),
                   .m = Tensor::zeros({size}, kept),
                   .v = Tensor::zeros({size}, kept),
                   .gradient = noise({size}, DType::f32),
                   .copy = copied ? Tensor::empty({size}, DType::bf16) : Tensor()});
  }
  return all;
}

}  // namespace

void add_optimizer_cases(CaseList& list) {
  const std::vector<std::int64_t> sizes = block_of(list.model);
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) total += size;
  const auto count = static_cast<double>(total);
  const std::string shape = fmt::format("{} in {} tensors", total, sizes.size());
  const AdamWSettings settings = {.learning_rate = 1e-5};
  list.memory_bound("adamw", shape, 28.0 * count, [=] {
    return [all = parameters_of(sizes, DType::f32, false), settings] { adamw(all, settings); };
  });
  list.memory_bound("adamw_with_copy", shape, 30.0 * count, [=] {
    return [all = parameters_of(sizes, DType::f32, true), settings] { adamw(all, settings); };
  });
  list.memory_bound("adamw_bf16", shape, 16.0 * count, [=] {
    return [all = parameters_of(sizes, DType::bf16, false), settings] { adamw(all, settings); };
  });
  list.memory_bound("gradient_norm", shape, 4.0 * count, [=] {
    return [all = tensors(sizes), norm = GradientNorm::empty()] { sum_of_squares(norm, all); };
  });
}

}  // namespace tessera
