// The kernels over real models' shapes, each with the work it cannot avoid.
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

/// What a kernel's rate is compared with, measured in the same run: a copy's bytes per second, or
/// the FLOP/s of plain matrix products of the shapes that the kernel is made of.
enum class Yardstick { copy, matmul };

struct KernelCase {
  std::string op;
  std::string shape;
  DType dtype = DType::f32;
  double bytes = 0.0;
  double flops = 0.0;
  Yardstick yardstick = Yardstick::copy;
  std::vector<MatmulShape> matmuls;
  /// Allocates the operands and returns what is timed.
  std::function<std::function<void()>()> prepare;
};

struct KernelSizes {
  /// Tokens of a batch: rows of activations.
  std::int64_t tokens = 8192;
  /// Model widths: of GPT-2 124M, GPT-2 XL and Llama 3 8B.
  std::vector<std::int64_t> widths = {768, 1600, 4096};
  std::int64_t vocab_size = 50304;
  /// Tokens of a row, for attention; its batch is tokens / sequence.
  std::int64_t sequence = 4096;
  std::int64_t head_size = 128;
};

/// Uniform values in [-1/2, 1/2): zeros would flatter a GPU, which clocks higher when few bits
/// change.
Tensor noise(const Shape& shape, DType dtype);

/// Every case, in the order of a training step. 16-bit or f32.
std::vector<KernelCase> kernel_cases(const KernelSizes& sizes, DType dtype);

}  // namespace tessera
