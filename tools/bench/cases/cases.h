// The kernels over real models' shapes, each with the least work it must do.
//
// There is one file per family. `bytes` counts every operand once: the traffic of a kernel that keeps
// on the chip all data that it reads again. `flops` counts 2 M N K for each matrix product. Causal
// attention counts half of the square; its backward pass counts 2.5 times its forward pass (five
// products instead of two, Dao 2023).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/transformer_shape.h"
#include "runtime/tensor.h"

namespace tessera {

/// The rate that a kernel's rate is divided by, measured in the same run: the bytes per second of a
/// copy, the FLOP/s of a library's or of our own plain matrix products of the kernel's shapes, cuDNN's
/// attention, with the same bits in every run or in any order, or the same work as separate calls
/// (`apart`). On a GPU plain matrix products are the library's.
enum class Baseline { copy, matmul, own_matmul, cudnn, cudnn_any_order, apart };

/// Allocates the operands and returns the function to time.
using Preparation = std::function<std::function<void()>()>;

struct KernelCase {
  std::string op;
  std::string shape;
  DType dtype = DType::f32;
  double bytes = 0.0;
  double flops = 0.0;
  Baseline baseline = Baseline::copy;
  std::vector<MatmulShape> matmuls;
  Preparation prepare;
  Preparation prepare_apart;  // for Baseline::apart
};

/// The shape of a preset, or of "tiny" (for tests). The context is the length of the benchmark's
/// sequences, at most 4096. Raises Error that lists the names.
TransformerShape model_shape(const std::string& name);

/// The cases of one model.
class CaseList {
 public:
  /// `rows` tokens of activations. 16-bit or f32.
  CaseList(TransformerShape model, std::int64_t rows, DType dtype)
      : model(std::move(model)), rows(rows), dtype(dtype) {}

  const TransformerShape model;
  const std::int64_t rows;
  const DType dtype;

  /// Bytes of rows x columns elements.
  static double bytes(std::int64_t rows, std::int64_t columns, DType dtype) {
    return static_cast<double>(rows) * static_cast<double>(columns * size_of(dtype));
  }
  double bytes(std::int64_t rows, std::int64_t columns) const {
    return bytes(rows, columns, dtype);
  }

  /// Adds a kernel bound by memory.
  void memory_bound(std::string op, std::string shape, double bytes, Preparation prepare);
  /// Adds a kernel bound by arithmetic, made of `matmuls`. `share` of their operations counts.
  void compute_bound(std::string op, std::string shape, double bytes, double share,
                     std::vector<MatmulShape> matmuls, Preparation prepare,
                     Baseline baseline = Baseline::matmul, Preparation prepare_apart = {});

  std::vector<KernelCase> take() { return std::move(cases_); }

 private:
  std::vector<KernelCase> cases_;
};

void add_embedding_cases(CaseList& list);
void add_norm_cases(CaseList& list);
void add_linear_cases(CaseList& list);
void add_moe_cases(CaseList& list);
void add_elementwise_cases(CaseList& list);
void add_attention_cases(CaseList& list);
void add_loss_cases(CaseList& list);
void add_optimizer_cases(CaseList& list);

/// Uniform ids below `bound`, [count] i32.
Tensor random_ids(std::int64_t count, std::int64_t bound);

/// Every case of a model, in the order of a training step.
std::vector<KernelCase> kernel_cases(const TransformerShape& model, std::int64_t rows, DType dtype);

}  // namespace tessera
