// [1 2; 3 4] times [5; 6], which needs the package's headers, its libraries and what they link.
#include <cstdio>
#include <vector>

#include "kernels/matmul/op.h"
#include "runtime/context.h"
#include "runtime/tensor.h"

int main() {
  tessera::RankContext context;
  const tessera::ContextGuard guard(context);
  const auto a = tessera::Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
  const auto b = tessera::Tensor::from(std::vector<float>{5, 6}, {2, 1});
  const auto c = tessera::Tensor::empty({2, 1}, tessera::DType::f32);
  tessera::matmul(c, a, b);
  const std::vector<float> product = c.to_vector<float>();
  std::printf("%g %g\n", product[0], product[1]);
  return product == std::vector<float>{17, 39} ? 0 : 1;
}
