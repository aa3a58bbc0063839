#include "tools/bench/cases/cases.h"

#include "runtime/check.h"
#include "runtime/random.h"

namespace tessera {
namespace {

// Radford et al. 2019 (GPT-2); Grattafiori et al. 2024, table 3 (Llama 3).
const std::vector<ModelShape>& models() {
  static const std::vector<ModelShape> all = {
      {.name = "gpt2",
       .width = 768,
       .hidden = 3072,
       .heads = 12,
       .kv_heads = 12,
       .head_size = 64,
       .sequence = 1024,
       .vocab_size = 50257},
      {.name = "gpt2-xl",
       .width = 1600,
       .hidden = 6400,
       .heads = 25,
       .kv_heads = 25,
       .head_size = 64,
       .sequence = 1024,
       .vocab_size = 50257},
      {.name = "llama3-8b",
       .width = 4096,
       .hidden = 14336,
       .heads = 32,
       .kv_heads = 8,
       .head_size = 128,
       .sequence = 4096,
       .vocab_size = 128256},
      {.name = "tiny",
       .width = 32,
       .hidden = 48,
       .heads = 2,
       .kv_heads = 1,
       .head_size = 16,
       .sequence = 8,
       .vocab_size = 101},
  };
  return all;
}

}  // namespace

ModelShape model_shape(const std::string& name) {
  std::string names;
  for (const ModelShape& model : models()) {
    if (model.name == name) return model;
    names += (names.empty() ? "" : ", ") + model.name;
  }
  fail("there are no kernel shapes of a model '{}'; there are those of {}", name, names);
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
                             Yardstick yardstick) {
  double flops = 0.0;
  for (const MatmulShape& matmul : matmuls) flops += share * matmul.flops();
  cases_.push_back({.op = std::move(op),
                    .shape = std::move(shape),
                    .dtype = dtype,
                    .bytes = bytes,
                    .flops = flops,
                    .yardstick = yardstick,
                    .matmuls = std::move(matmuls),
                    .prepare = std::move(prepare)});
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

std::vector<KernelCase> kernel_cases(const ModelShape& model, std::int64_t rows, DType dtype) {
  CaseList list(model, rows, dtype);
  add_embedding_cases(list);
  add_norm_cases(list);
  add_linear_cases(list);
  add_attention_cases(list);
  add_elementwise_cases(list);
  add_loss_cases(list);
  add_optimizer_cases(list);
  return list.take();
}

}  // namespace tessera
