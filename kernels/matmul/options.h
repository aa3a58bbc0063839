// How matrix products are computed.
#pragma once

#include <cstdint>

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

/// A gated feed-forward layer on a GPU of architecture 9.0, in 16 bits. `epilogue`: our own products
/// compute SwiGLU, and its gradient, before they store. `separate`: cuBLASLt's, and kernels of SwiGLU.
/// `automatic`: `separate` from kSeparateSwigluDepth input channels on.
enum class SwigluChoice { automatic, epilogue, separate };
template <>
inline constexpr EnumNames<SwigluChoice> kEnumNames<SwigluChoice> = {
    "swiglu", {"auto", "epilogue", "separate"}};

/// The time that the epilogue saves does not grow with a product's depth, and the time that cuBLASLt's
/// product saves does. On an H200 with 2,048 channels both were equal, and with 4,096 `separate` took 0.97
/// of the time (docs/gpu_results.md).
inline constexpr std::int64_t kSeparateSwigluDepth = 4096;

/// GELU in the form of tanh, between the layers of a feed-forward network on a GPU of architecture 9.0, in 16 bits.
/// `library`: in the epilogue of cuBLASLt's products. `own`: of ours, which also add up the rows of the gradient for
/// the bias.
enum class GeluChoice { library, own };
template <>
inline constexpr EnumNames<GeluChoice> kEnumNames<GeluChoice> = {"gelu", {"library", "own"}};

struct MatmulOptions {
  MatmulLibrary library = MatmulLibrary::tessera;
  /// On the CPU: the instructions of all kernels, and with bf16 factors the bits of products. This
  /// CPU must have the level.
  cpu::Isa isa = cpu::best_isa();
  AlgorithmChoice choice = AlgorithmChoice::suggested;
  SwigluChoice swiglu = SwigluChoice::automatic;
  GeluChoice gelu = GeluChoice::library;
  /// On a GPU: may f32 factors be rounded to the 11 significant bits of tf32, which is several times faster?
  bool tf32 = false;
};

/// The options of the calling thread's rank. An assignment holds for the products that follow.
MatmulOptions& matmul_options();

/// Whether a dense gated layer of so many input channels takes the epilogue. It depends on the layer alone,
/// so all strategies and ranks choose alike.
bool takes_swiglu_epilogue(SwigluChoice choice, std::int64_t channels);

}  // namespace tessera
