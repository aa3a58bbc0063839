// How matrix products are computed.
#pragma once

#include "kernels/matmul/cpu/isa.h"

namespace tessera {

/// Products on the CPU: our own, or OpenBLAS's to compare with. The latter's bits depend on the rows
/// that are computed together.
enum class MatmulLibrary { tessera, openblas };
template <>
inline constexpr EnumNames<MatmulLibrary> kEnumNames<MatmulLibrary> = {"matmul",
                                                                       {"tessera", "openblas"}};

/// cuBLASLt's algorithm for a kind of product on a GPU. `suggested` is the first that the library
/// suggests: the same in every run. `measured` is the fastest of several by measurement: it may differ
/// between runs, and with it the bits (kernels/matmul/measured.h).
enum class AlgorithmChoice { suggested, measured };
template <>
inline constexpr EnumNames<AlgorithmChoice> kEnumNames<AlgorithmChoice> = {
    "choice", {"suggested", "measured"}};

/// A gated feed-forward layer on a GPU of architecture 9.0, in 16 bits. `epilogue`: our own product of
/// gate and up stores SwiGLU's result as well. `separate`: cuBLASLt's product, and a kernel of SwiGLU.
enum class SwigluChoice { epilogue, separate };
template <>
inline constexpr EnumNames<SwigluChoice> kEnumNames<SwigluChoice> = {"swiglu",
                                                                     {"epilogue", "separate"}};

struct MatmulOptions {
  MatmulLibrary library = MatmulLibrary::tessera;
  /// On the CPU: the instructions of all kernels, and with bf16 factors the bits of products. This
  /// CPU must have the level.
  cpu::Isa isa = cpu::best_isa();
  AlgorithmChoice choice = AlgorithmChoice::suggested;
  SwigluChoice swiglu = SwigluChoice::epilogue;
  /// On a GPU: may f32 factors be rounded to the 11 significant bits of tf32, which is several times faster?
  bool tf32 = false;
};

/// The options of the calling thread's rank. An assignment holds for the products that follow.
MatmulOptions& matmul_options();

}  // namespace tessera
