// What every operation shares: the words its signature is written in.
//
// An operation is a folder: `op.h` states the formula, shapes, dtypes and what backward needs;
// `op.cpp` checks the arguments and picks the device; `cpu.cpp` (and `cuda.cu`) compute. Forward
// and backward are separate functions. Outputs come first, inputs after, scalars last. Arithmetic
// is f32 whatever the storage type (f64 for f64). Unless `op.h` says otherwise all floating tensors
// of a call have one dtype, and outputs must not overlap inputs. Wrong arguments raise Error.
// Kernels run on the current stream of the current context.
#pragma once

#include "runtime/tensor.h"

namespace tessera {

/// A tensor whose elements the operation writes (the handle itself stays as it is).
using Out = const Tensor&;

/// Whether an output is overwritten or added to.
enum class Accumulate : bool { no = false, yes = true };

/// Whether a matrix is used as stored or transposed.
enum class Transpose : bool { no = false, yes = true };

}  // namespace tessera
