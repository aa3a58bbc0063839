// Steps around a matrix product, done while parts of its matrices are in the cache.
//
//                         b is read, to be packed
//                           |
//   packed panels  <--------+-->  reads_b(part)
//        |
//   blocks of c    ------------>  finished(part)
//
// A separate pass would read each matrix from memory once more. matmul/cpu/product.cpp calls the
// steps on the threads that multiply.
#pragma once

#include <functional>

#include "kernels/cpu/rectangle.h"
#include "kernels/op.h"

namespace tessera::cpu {

/// Functions of a part of a matrix. Any of them may be empty.
struct ProductSteps {
  using Step = std::function<void(const Rectangle& part)>;

  /// A part of c has its final values, rounded if c is. The parts are disjoint and cover c. In its
  /// part the step may change c.
  Step finished;
  /// The columns of c are so many sections of equal width: two if they are gate and up. Then `finished`
  /// gets parts of the first section, and the same part of every other one has its final values too.
  std::int64_t sections = 1;
  /// A part of op(a)^T or op(b): its rows are depths. The parts are disjoint and cover the factor.
  /// Parts of a column are visited one after the other, from the first depth on. They begin at
  /// multiples of kDepthsOfStep.
  Step reads_a, reads_b;
};

inline constexpr std::int64_t kDepthsOfStep = 64;

/// Calls a step for all of a matrix, in parallel: by columns, each with all rows, or by rows.
void visit_columns(const ProductSteps::Step& step, std::int64_t rows, std::int64_t columns);
void visit_rows(const ProductSteps::Step& step, std::int64_t rows, std::int64_t columns);

/// tessera::matmul of two matrices, with steps.
void matmul(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a, Transpose transpose_b,
            Accumulate accumulate, const ProductSteps& steps);

}  // namespace tessera::cpu
