// The first program of docs/runtime.md. Run build/bin/first_tensor.

#include <fmt/format.h>

#include "runtime/context.h"
#include "runtime/tensor.h"

using namespace tessera;

int main() {
  RankContext rank({.threads = 2, .seed = 1});
  const ContextGuard guard(rank);
  const CategoryScope category(Category::activations);

  Tensor row;
  {
    const Tensor matrix = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
    row = matrix.slice(1, 2);
  }
  const MemoryAccount account = rank.allocator().account();
  fmt::print("{} begins with {}; {} bytes are live\n", to_string(row), row.to_vector<float>()[0],
             account[Category::activations].current);
}
