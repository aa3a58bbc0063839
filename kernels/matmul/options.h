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

struct MatmulOptions {
  MatmulLibrary library = MatmulLibrary::tessera;
  /// On the CPU: the instructions of all kernels, and with bf16 factors the bits of products. This
  /// CPU must have the level.
  cpu::Isa isa = cpu::best_isa();
  /// On a GPU: the library's algorithm for a shape. `suggested` is the first that the library suggests: the
  /// same in every run. `measured` is the fastest of several by measurement: it may differ between
  /// runs, and with it the bits.
  enum class Choice { suggested, measured } choice = Choice::suggested;
  /// On a GPU: may f32 factors be rounded to the 11 significant bits of tf32, which is several times faster?
  bool tf32 = false;
};

/// The options of the calling thread's rank. An assignment holds for the products that follow.
MatmulOptions& matmul_options();

}  // namespace tessera
