#include "kernels/newton_schulz/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::normal_tensor;
using test::relative_error;
using test::same_bits;
using test::to_doubles;
using Values = std::vector<double>;

/// A matrix of doubles, row by row.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  Values values;

  double& at(std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
  double at(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
};

Matrix zeros(std::int64_t rows, std::int64_t columns) {
  return {rows, columns, Values(static_cast<std::size_t>(rows * columns))};
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c = zeros(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t k = 0; k < a.columns; ++k) {
      for (std::int64_t j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix t = zeros(a.columns, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < a.columns; ++j) t.at(j, i) = a.at(i, j);
  }
  return t;
}

/// torch.optim.Muon's _zeropower_via_newtonschulz in f64.
Matrix reference(const Matrix& x, int steps) {
  if (x.rows > x.columns) return transposed(reference(transposed(x), steps));
  double squares = 0.0;
  for (const double value : x.values) squares += value * value;
  Matrix y = x;
  for (double& value : y.values) value /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < steps; ++step) {
    const Matrix a = product(y, transposed(y)), squared = product(a, a);
    Matrix b = a;
    for (std::size_t i = 0; i < b.values.size(); ++i) {
      b.values[i] = -4.7750 * a.values[i] + 2.0315 * squared.values[i];
    }
    const Matrix by = product(b, y);
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      y.values[i] = 3.4445 * y.values[i] + by.values[i];
    }
  }
  return y;
}

Matrix matrix_of(const Tensor& tensor) {
  return {tensor.size(0), tensor.size(1), to_doubles(tensor)};
}

const std::vector<Shape> kShapes = {{1, 1},   {1, 9},   {9, 1},    {16, 16}, {24, 40},
                                    {40, 24}, {33, 65}, {130, 66}, {64, 256}};

}  // namespace

TEST_CASE("newton_schulz: five steps agree with the iteration in f64, wide, tall and square") {
  const test::Rank rank;
  for (const Shape& shape : kShapes) {
    for (const double scale : {1.0, 1e-3, 1e20}) {  // the square of 1e20 overflows f32
      CAPTURE(shape[0], shape[1], scale);
      const Tensor x = normal_tensor(shape, DType::f32, "matrix", scale);
      const Matrix expected = reference(matrix_of(x), kNewtonSchulzSteps);
      newton_schulz(x);
      REQUIRE(relative_error(to_doubles(x), expected.values) <= 5e-6);
    }
  }
}

TEST_CASE("newton_schulz: bf16 agrees with the iteration in f64 to bf16's rounding") {
  const test::Rank rank;
  for (const Shape& shape : kShapes) {
    CAPTURE(shape[0], shape[1]);
    const Tensor x = normal_tensor(shape, DType::bf16, "matrix");
    const Matrix expected = reference(matrix_of(x), kNewtonSchulzSteps);
    newton_schulz(x);
    REQUIRE(relative_error(to_doubles(x), expected.values) <= 0.04);
  }
}

TEST_CASE("newton_schulz: singular values come between 0.6 and 1.3") {
  const test::Rank rank;
  // A product of rotations and a diagonal: the singular values are known.
  const std::int64_t n = 8;
  Matrix x = zeros(n, n);
  for (std::int64_t i = 0; i < n; ++i) x.at(i, i) = std::pow(0.6, static_cast<double>(i));
  for (const bool left : {true, false}) {
    for (std::int64_t i = 0; i + 1 < n; ++i) {
      const double c = std::cos(0.3 + static_cast<double>(i)), s = std::sqrt(1.0 - c * c);
      Matrix rotation = zeros(n, n);
      for (std::int64_t j = 0; j < n; ++j) rotation.at(j, j) = 1.0;
      rotation.at(i, i) = rotation.at(i + 1, i + 1) = c;
      rotation.at(i, i + 1) = s;
      rotation.at(i + 1, i) = -s;
      x = left ? product(rotation, x) : product(x, rotation);
    }
  }
  const Tensor tensor = test::tensor_of(x.values, {n, n}, DType::f32);
  newton_schulz(tensor);
  // x^T y has the singular values s_i f(s_i) and is symmetric; its trace is between these bounds.
  const Matrix y = matrix_of(tensor);
  const Matrix both = product(transposed(x), y), gram = product(y, transposed(y));
  double trace = 0.0, nuclear = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    trace += both.at(i, i);
    nuclear += std::pow(0.6, static_cast<double>(i));
    for (std::int64_t j = 0; j < i; ++j) {
      REQUIRE(both.at(i, j) == Approx(both.at(j, i)).margin(1e-5));
    }
    REQUIRE(gram.at(i, i) > 0.36);
    REQUIRE(gram.at(i, i) < 1.69);
  }
  REQUIRE(trace > 0.6 * nuclear);
  REQUIRE(trace < 1.3 * nuclear);
}

TEST_CASE("newton_schulz: a matrix of zeros stays, and steps are counted") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = Tensor::zeros({5, 7}, dtype);
    newton_schulz(x);
    REQUIRE(to_doubles(x) == Values(35, 0.0));
  }
  const Tensor x = normal_tensor({12, 20}, DType::f32, "matrix");
  const Matrix expected = reference(matrix_of(x), 2);
  newton_schulz(x, 2);
  REQUIRE(relative_error(to_doubles(x), expected.values) <= 5e-6);
}

TEST_CASE("newton_schulz: the same bits for any number of threads", "[cpu]") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape& shape : {Shape{130, 66}, Shape{300, 700}}) {
      std::vector<std::vector<std::uint8_t>> found;
      for (const int threads : {1, 2, 3}) {
        const test::Rank rank(threads);
        const Tensor x = normal_tensor(shape, dtype, "matrix");
        newton_schulz(x);
        found.push_back(test::bytes_of(x));
      }
      REQUIRE(found[0] == found[1]);
      REQUIRE(found[0] == found[2]);
    }
  }
}

TEST_CASE("newton_schulz: operations are those of its products") {
  // By hand: 2 x 3 x 3 x 5 for A, 2 x 3^3 for A A, 2 x 3 x 3 x 5 for B x.
  REQUIRE(newton_schulz_flops(3, 5, 1) == 90.0 + 54.0 + 90.0);
  REQUIRE(newton_schulz_flops(5, 3) == 5 * newton_schulz_flops(3, 5, 1));
}

TEST_CASE("newton_schulz: wrong arguments are named") {
  const test::Rank rank;
  REQUIRE_THROWS_WITH(newton_schulz(Tensor::zeros({4}, DType::f32)), Contains("x is f32 [4]"));
  REQUIRE_THROWS_WITH(newton_schulz(Tensor::zeros({4, 4}, DType::f16)),
                      Contains("x is f16 [4, 4]; its dtype must be f32 or bf16"));
}

}  // namespace tessera
