// Biases on a part of a matrix, on the calling thread.
//
// A product that has the part in the cache calls these (matmul/cpu/steps.h). The bits are those of the
// operations in bias/op.h.
#pragma once

#include "kernels/cpu/rectangle.h"
#include "kernels/matmul/cpu/isa.h"
#include "kernels/op.h"

namespace tessera::cpu {

/// Adds the bias to the rows of a part of y.
void bias_forward(Isa isa, const Rectangle& part, Out y, const Tensor& bias);

/// dbias (+)= the sum of dy's rows. The parts that are added cover dy once, which has a row at least.
/// Parts of a column are added one after the other, from the first row on, and begin at multiples
/// of kRowsPerPartial.
class BiasGradient {
 public:
  static constexpr std::int64_t kRowsPerPartial = 64;

  BiasGradient(Out dbias, const Tensor& dy, Accumulate accumulate);
  void add(Isa isa, const Rectangle& part) const;

 private:
  template <typename To, typename T>
  void add(const Rectangle& part) const;

  const Tensor dbias_, dy_;
  const Accumulate accumulate_;
  const Tensor sums_;  // [C], of the rows so far
};

}  // namespace tessera::cpu
