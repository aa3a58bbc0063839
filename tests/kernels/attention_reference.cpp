#include <Eigen/Core>
#include <cmath>
#include <cstdint>

#include "tests/kernels/attention_problem.h"

namespace tessera::test {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;
using Head = Eigen::Map<Matrix, Eigen::Unaligned, Eigen::OuterStride<>>;

/// One head [tokens, head_size] of values in the order batch, token, head, channel.
Head head_of(std::vector<double>& x, std::int64_t tokens, std::int64_t heads,
             std::int64_t head_size, std::int64_t batch, std::int64_t head) {
  double* const first = x.data() + (batch * tokens * heads + head) * head_size;
  return {first, tokens, head_size, Eigen::OuterStride<>(heads * head_size)};
}

}  // namespace

AttentionReference::AttentionReference(const AttentionProblem& problem, DType storage) {
  const AttentionSizes& n = problem.sizes;
  const double scale = problem.scale;
  const auto rounded = [storage](double value) { return rounded_to(storage, value); };
  std::vector<double> q = elements(problem.q), k = elements(problem.k), v = elements(problem.v);
  std::vector<double> d_o = elements(problem.d_o);
  std::vector<std::int32_t> first_key(static_cast<std::size_t>(n.batch * n.queries), 0);
  if (problem.first_key.defined()) first_key = problem.first_key.to_vector<std::int32_t>();
  o.resize(q.size());
  dq.resize(q.size());
  dk.resize(k.size());
  dv.resize(v.size());
  for (std::int64_t b = 0; b < n.batch; ++b) {
    for (std::int64_t h = 0; h < n.heads; ++h) {
      const auto of_query = [&](std::vector<double>& x) {
        return head_of(x, n.queries, n.heads, n.head_size, b, h);
      };
      const auto of_key = [&](std::vector<double>& x) {
        return head_of(x, n.keys, n.kv_heads, n.head_size, b, h / (n.heads / n.kv_heads));
      };
      const Head Q = of_query(q), K = of_key(k), V = of_key(v), dO = of_query(d_o);

      Matrix S = (scale * Q * K.transpose()).unaryExpr(rounded);
      for (std::int64_t i = 0; i < n.queries; ++i) {
        S.row(i).head(first_key[b * n.queries + i]).setConstant(-HUGE_VAL);  // other documents
        S.row(i).tail(n.queries - 1 - i).setConstant(-HUGE_VAL);             // later tokens
      }
      const Vector largest = S.rowwise().maxCoeff();
      Matrix P = (S.colwise() - largest).array().exp();
      const Vector sums = P.rowwise().sum();
      P = (sums.cwiseInverse().asDiagonal() * P).unaryExpr(rounded);
      of_query(o) = P * V;
      const Vector log_sums = largest.array() + sums.array().log();
      logsumexp.insert(logsumexp.end(), log_sums.begin(), log_sums.end());

      const Matrix dP = (dO * V.transpose()).unaryExpr(rounded);
      const Vector mean = P.cwiseProduct(dP).rowwise().sum();
      const Matrix dS = scale * P.cwiseProduct(dP.colwise() - mean).unaryExpr(rounded);
      of_query(dq) = dS * K;
      of_key(dk) += dS.transpose() * Q;
      of_key(dv) += P.transpose() * dO;
    }
  }
  for (std::vector<double>* output : {&o, &dq, &dk, &dv}) {
    for (double& value : *output) value = rounded(value);
  }
}

}  // namespace tessera::test
