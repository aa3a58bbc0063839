// Products in order give the same bits with vectors of every width.
#include "kernels/matmul/in_order.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace tessera {
namespace {

using cpu::Piece;
using cpu::Vectors;

/// A step of the chain, as the code for these vectors is compiled.
template <typename T>
T step(T a, T b, T sum, [[maybe_unused]] Vectors vectors) {
#if !defined(__FMA__)
  if (vectors == Vectors::bytes16) {
    const volatile T product = a * b;
    return product + sum;
  }
#endif
  return std::fma(a, b, sum);
}

template <typename T>
std::vector<T> normal(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<T> draw;
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = draw(random);
  return values;
}

struct Sizes {
  std::int64_t rows, columns, depth;
};

/// Compares a piece with the chains of its elements, bit for bit. The rows of all operands have some
/// elements more than the piece takes.
template <typename T>
void check_chains(const Sizes& n, bool transposed, bool accumulate, Vectors vectors) {
  const std::int64_t a_row = n.depth + 3, c_row = n.columns + 5;
  const std::int64_t stride = (transposed ? n.depth : n.columns) + 2;
  const auto a = normal<T>(n.rows * a_row, 1);
  const auto b = normal<T>((transposed ? n.columns : n.depth) * stride, 2);
  auto c = normal<T>(n.rows * c_row, 3);
  auto expected = c;
  for (std::int64_t i = 0; i < n.rows; ++i) {
    for (std::int64_t j = 0; j < n.columns; ++j) {
      T sum = 0;
      for (std::int64_t k = 0; k < n.depth; ++k) {
        const T factor = b[static_cast<std::size_t>(transposed ? j * stride + k : k * stride + j)];
        sum = step(a[static_cast<std::size_t>(i * a_row + k)], factor, sum, vectors);
      }
      T& element = expected[static_cast<std::size_t>(i * c_row + j)];
      element = accumulate ? element + sum : sum;
    }
  }
  multiply_in_order(Piece<T>{.rows = n.rows,
                             .columns = n.columns,
                             .depth = n.depth,
                             .accumulate = accumulate,
                             .a = a.data(),
                             .a_row = a_row,
                             .b = b.data(),
                             .b_stride = stride,
                             .b_transposed = transposed,
                             .c = c.data(),
                             .c_row = c_row},
                    vectors);
  CHECK(c == expected);
}

}  // namespace

TEST_CASE("products in order are the chains of every element, with vectors of every width",
          "[cpu]") {
  const Vectors vectors = GENERATE(Vectors::bytes16, Vectors::bytes32, Vectors::bytes64);
  if (vectors > cpu::widest_vectors()) return;
  CAPTURE(static_cast<int>(vectors));
  // One element; whole tiles; the last rows and columns of each number; enough rows to copy b;
  // several strips; the deepest piece.
  for (const Sizes n : {Sizes{1, 1, 1},
                        {6, 64, 16},
                        {5, 37, 7},
                        {31, 9, 33},
                        {25, 131, 20},
                        {13, 16, 17},
                        {7, 70, cpu::kMostDepth}}) {
    for (const bool transposed : {false, true}) {
      for (const bool accumulate : {false, true}) {
        CAPTURE(n.rows, n.columns, n.depth, transposed, accumulate);
        check_chains<float>(n, transposed, accumulate, vectors);
        check_chains<double>(n, transposed, accumulate, vectors);
      }
    }
  }
}

}  // namespace tessera
