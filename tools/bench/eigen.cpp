#include "tools/bench/eigen.h"

#include <Eigen/Core>

namespace tessera {

void multiply(const EigenProduct& p) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Factor = Eigen::Map<const Matrix>;
  Eigen::Map<Matrix> c(p.c, p.m, p.n);
  const auto store = [&](const auto& a, const auto& b) { c.noalias() = a * b; };
  const auto times_b = [&](const auto& a) {
    p.transpose_b ? store(a, Factor(p.b, p.n, p.k).transpose()) : store(a, Factor(p.b, p.k, p.n));
  };
  p.transpose_a ? times_b(Factor(p.a, p.k, p.m).transpose()) : times_b(Factor(p.a, p.m, p.k));
}

}  // namespace tessera
