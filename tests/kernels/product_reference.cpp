#include "tests/kernels/product_reference.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// op(x) of matrix number i of a batch.
Matrix factor(const Tensor& x, const std::vector<double>& values, std::int64_t i,
              Transpose transpose) {
  const std::int64_t rows = x.size(-2), columns = x.size(-1);
  const Eigen::Map<const Matrix> stored(values.data() + i * rows * columns, rows, columns);
  if (transpose == Transpose::yes) return stored.transpose();
  return stored;
}

void append_elements(std::vector<double>& to, const Matrix& x) {
  to.insert(to.end(), x.data(), x.data() + x.size());
}

}  // namespace

ProductReference product_reference(const Tensor& a, const Tensor& b, Transpose transpose_a,
                                   Transpose transpose_b) {
  const std::vector<double> a_values = to_doubles(a), b_values = to_doubles(b);
  ProductReference result{.terms = a.size(transpose_a == Transpose::yes ? -2 : -1),
                          .sum = statistics_dtype(a.dtype())};
  const std::int64_t batch = a.shape().rank() == 3 ? a.size(0) : 1;
  for (std::int64_t i = 0; i < batch; ++i) {
    const Matrix x = factor(a, a_values, i, transpose_a), y = factor(b, b_values, i, transpose_b);
    append_elements(result.value, x * y);
    append_elements(result.magnitude, x.cwiseAbs() * y.cwiseAbs());
  }
  return result;
}

void ProductReference::add(const Tensor& c) {
  const std::vector<double> values = to_doubles(c);
  for (std::size_t i = 0; i < values.size(); ++i) {
    value[i] += values[i];
    magnitude[i] += std::fabs(values[i]);
  }
}

void ProductReference::append(const ProductReference& rows) {
  value.insert(value.end(), rows.value.begin(), rows.value.end());
  magnitude.insert(magnitude.end(), rows.magnitude.begin(), rows.magnitude.end());
  terms = std::max(terms, rows.terms);
  sum = rows.sum;
}

double excess(const Tensor& c, const ProductReference& expected) {
  const std::vector<double> values = to_doubles(c);
  check(values.size() == expected.value.size(), "excess compares {} with {} values", values.size(),
        expected.value.size());
  const double sum_roundings =
      2.0 * std::sqrt(static_cast<double>(expected.terms) + 1.0) * unit_roundoff(expected.sum);
  const double smallest = c.dtype() == DType::f16 ? 0x1p-25 : 1e-300;  // half a denormal number
  double worst = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double allowed = 1.001 * unit_roundoff(c.dtype()) * std::fabs(expected.value[i]) +
                           sum_roundings * expected.magnitude[i] + smallest;
    const double error = std::fabs(values[i] - expected.value[i]) / allowed;
    if (!(error <= worst)) worst = std::isnan(error) ? HUGE_VAL : error;
  }
  return worst;
}

}  // namespace tessera::test
