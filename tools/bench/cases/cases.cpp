#include "tools/bench/cases/cases.h"

#include <algorithm>

#include "models/registry.h"
#include "runtime/check.h"
#include "runtime/random.h"

namespace tessera {
namespace {

constexpr TransformerShape kTiny = {.vocab_size = 101,
                                    .context = 8,
                                    .layers = 1,
                                    .width = 32,
                                    .heads = 2,
                                    .kv_heads = 1,
                                    .head_size = 16,
                                    .mlp_width = 48};

constexpr std::int64_t kLongestSequence = 4096;

}  // namespace

TransformerShape model_shape(const std::string& name) {
  std::vector<std::string_view> names = model_presets();
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    TransformerShape shape = shape_of(model_preset(name));
    shape.context = std::min(shape.context, kLongestSequence);
    return shape;
  }
  if (name == "tiny") return kTiny;
  names.push_back("tiny");
  fail("unknown model '{}': choose from {}", name, fmt::join(names, ", "));
}

void CaseList::memory_bound(std::string op, std::string shape, double bytes, Preparation prepare) {
  cases_.push_back({.op = std::move(op),
                    .shape = std::move(shape),
                    .dtype = dtype,
                    .bytes = bytes,
                    .prepare = std::move(prepare)});
}

void CaseList::compute_bound(std::string op, std::string shape, double bytes, double share,
                             std::vector<MatmulShape> matmuls, Preparation prepare,
                             Baseline baseline, Preparation prepare_apart) {
  double flops = 0.0;
  for (const MatmulShape& matmul : matmuls) flops += share * matmul.flops();
  cases_.push_back({.op = std::move(op),
                    .shape = std::move(shape),
                    .dtype = dtype,
                    .bytes = bytes,
                    .flops = flops,
                    .baseline = baseline,
                    .matmuls = std::move(matmuls),
                    .prepare = std::move(prepare),
                    .prepare_apart = std::move(prepare_apart)});
}

Tensor random_ids(std::int64_t count, std::int64_t bound) {
  const RandomStream random(0, "ids");
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<std::int32_t>(
        random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(bound))));
  }
  return Tensor::from(values, {count});
}

std::vector<KernelCase> kernel_cases(const TransformerShape& model, std::int64_t rows,
                                     DType dtype) {
  CaseList list(model, rows, dtype);
  add_embedding_cases(list);
  add_norm_cases(list);
  add_linear_cases(list);
  add_moe_cases(list);
  add_attention_cases(list);
  add_elementwise_cases(list);
  add_loss_cases(list);
  add_optimizer_cases(list);
  return list.take();
}

}  // namespace tessera
