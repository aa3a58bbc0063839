// The emulated cuBLASLt's sums: right, and the same bits wherever a row is.
#include "runtime/emulation/toolkit/ordered_product.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace tessera::emulation {
namespace {

std::vector<float> values(std::int64_t count, int seed) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<float>(std::sin(static_cast<double>(i) * 1.7 + seed));
  }
  return result;
}

}  // namespace

TEST_CASE("the emulated product of any shape is a float64 sum, rounded") {
  for (const std::int64_t m : {1, 3, 4, 9}) {
    for (const std::int64_t n : {1, 15, 16, 40}) {
      for (const std::int64_t k : {0, 1, 17}) {
        CAPTURE(m, n, k);
        const std::int64_t a_stride = k + 3, b_stride = n + 2;
        const auto a = values(m * a_stride, 1), b = values(k * b_stride, 2);
        std::vector<float> c(static_cast<std::size_t>(m * n + 1), 7.0f);
        ordered_product(c.data(), {a.data(), m, k, a_stride}, {b.data(), k, n, b_stride});
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0.0;
            for (std::int64_t l = 0; l < k; ++l) {
              sum += double{a[i * a_stride + l]} * double{b[l * b_stride + j]};
            }
            CHECK(std::fabs(c[i * n + j] - sum) <= 17 * 17 * 6e-8);
          }
        }
        CHECK(c.back() == 7.0f);
      }
    }
  }
}

TEST_CASE("equal rows of an emulated product are equal, wherever they are and however many") {
  constexpr std::int64_t kRows = 46, kColumns = 53, kDepth = 40;
  const auto row = values(kDepth, 1), b = values(kDepth * kColumns, 2);
  std::vector<float> a, all(kRows * kColumns), alone(kColumns);
  for (std::int64_t i = 0; i < kRows; ++i) a.insert(a.end(), row.begin(), row.end());
  const FloatMatrix right{b.data(), kDepth, kColumns, kColumns};
  ordered_product(all.data(), {a.data(), kRows, kDepth, kDepth}, right);
  ordered_product(alone.data(), {a.data(), 1, kDepth, kDepth}, right);
  for (std::int64_t i = 0; i < kRows; ++i) {
    const auto begin = all.begin() + i * kColumns;
    CHECK(std::vector<float>(begin, begin + kColumns) == alone);
  }
}

}  // namespace tessera::emulation
