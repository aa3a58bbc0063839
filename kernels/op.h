// The vocabulary that every operation's signature uses.
//
// An operation is a folder. `op.h` states the formula, shapes, dtypes and what backward needs.
// `op.cpp` checks the arguments and picks the device. `cpu.cpp` and `cuda.cu` compute. Forward and
// backward are separate functions. Outputs come first, inputs after, scalars last. Arithmetic is
// f32 for every storage type of at most 32 bits, and f64 for f64. Unless `op.h` says otherwise, all
// floating tensors of a call have one dtype, and outputs must not overlap inputs. Wrong arguments
// raise Error. Kernels run on the current stream of the current context.
//
// Namespaces, one rule for all of kernels/:
//
//   tessera          public functions and types, declared in op.h
//   tessera::cpu     an operation's CPU backend, and the helpers of kernels/cpu/
//   tessera::cuda    an operation's CUDA backend, and the libraries it calls (kernels/cuda/gemm.h);
//                    cuda::OPERATION holds names that several files of one operation share
//   tessera::gpu     helpers of kernels/cuda/ for .cu files: vectors, tiles, launches
//
// A signature stands once, on the public function, with its default arguments. A backend with the
// same signature is declared from it, without the defaults:
//
//   void add(Out y, const Tensor& a, const Tensor& b);
//   namespace cpu { decltype(tessera::add) add; }
//   namespace cuda { decltype(tessera::add) add; }
#pragma once

#include "runtime/tensor.h"

namespace tessera {

/// A tensor. The operation writes its elements (the handle itself stays as it is).
using Out = const Tensor&;

/// Whether an output is overwritten or added to.
enum class Accumulate : bool { no = false, yes = true };

/// Whether a matrix is used as stored or transposed.
enum class Transpose : bool { no = false, yes = true };

inline Transpose opposite(Transpose transpose) {
  return transpose == Transpose::no ? Transpose::yes : Transpose::no;
}

}  // namespace tessera
