// The kernels over real models' shapes, each with the work it cannot avoid: one file per family.
//
// `bytes` counts every operand once: what a kernel must read and write if nothing it needs again
// leaves the chip. `flops` counts matrix products: 2 M N K each; causal attention counts half the
// square, its backward 2.5 times its forward (five products for two, Dao 2023).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "runtime/tensor.h"

namespace tessera {

/// What a kernel's rate is compared with, measured in the same run: a copy's bytes per second, the
/// FLOP/s of plain matrix products of the shapes that the kernel is made of, or cuDNN's attention.
enum class Yardstick { copy, matmul, cudnn };

/// Allocates the operands and returns what is timed.
using Preparation = std::function<std::function<void()>()>;

struct KernelCase {
  std::string op;
  std::string shape;
  DType dtype = DType::f32;
  double bytes = 0.0;
  double flops = 0.0;
  Yardstick yardstick = Yardstick::copy;
  std::vector<MatmulShape> matmuls;
  Preparation prepare;
};

/// The sizes of a model that its kernels see.
struct ModelShape {
  std::string name;
  std::int64_t width = 0;
  std::int64_t hidden = 0;  // of the feed-forward
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t sequence = 0;
  std::int64_t vocab_size = 0;
};

/// gpt2, gpt2-xl, llama3-8b, and tiny, which is nobody's. Raises Error that lists them.
ModelShape model_shape(const std::string& name);

/// The cases of one model, gathered.
class CaseList {
 public:
  /// `rows` tokens of activations. 16-bit or f32.
  CaseList(ModelShape model, std::int64_t rows, DType dtype)
      : model(std::move(model)), rows(rows), dtype(dtype) {}

  const ModelShape model;
  const std::int64_t rows;
  const DType dtype;

  /// Bytes of that many elements.
  static double bytes(std::int64_t rows, std::int64_t columns, DType dtype) {
    return static_cast<double>(rows) * static_cast<double>(columns * size_of(dtype));
  }
  double bytes(std::int64_t rows, std::int64_t columns) const {
    return bytes(rows, columns, dtype);
  }

  /// A kernel bound by memory.
  void memory_bound(std::string op, std::string shape, double bytes, Preparation prepare);
  /// A kernel bound by arithmetic, made of `matmuls`; `share` of their operations count.
  void compute_bound(std::string op, std::string shape, double bytes, double share,
                     std::vector<MatmulShape> matmuls, Preparation prepare,
                     Yardstick yardstick = Yardstick::matmul);

  std::vector<KernelCase> take() { return std::move(cases_); }

 private:
  std::vector<KernelCase> cases_;
};

void add_embedding_cases(CaseList& list);
void add_norm_cases(CaseList& list);
void add_linear_cases(CaseList& list);
void add_elementwise_cases(CaseList& list);
void add_attention_cases(CaseList& list);
void add_loss_cases(CaseList& list);
void add_optimizer_cases(CaseList& list);

/// Uniform ids below `bound`, [count] i32.
Tensor random_ids(std::int64_t count, std::int64_t bound);

/// Every case of a model, in the order of a training step.
std::vector<KernelCase> kernel_cases(const ModelShape& model, std::int64_t rows, DType dtype);

}  // namespace tessera
