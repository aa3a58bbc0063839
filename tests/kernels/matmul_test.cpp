#include <catch2/catch.hpp>

#include "kernels/cuda/gemm.h"
#include "kernels/matmul/op.h"
#include "kernels/matmul/options.h"
#include "tests/kernels/product_reference.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

constexpr Transpose kBoth[] = {Transpose::no, Transpose::yes};

struct Size {
  std::int64_t batch, M, N, K;  // batch 0: matrices without a batch dimension
};

Shape stored(std::int64_t batch, std::int64_t rows, std::int64_t columns, Transpose transpose) {
  if (transpose == Transpose::yes) std::swap(rows, columns);
  return batch == 0 ? Shape{rows, columns} : Shape{batch, rows, columns};
}

void check_product(const Size& s, DType in, DType out, Transpose ta, Transpose tb) {
  INFO(s.batch << " x " << s.M << " x " << s.N << " x " << s.K << " " << name_of(in) << " to "
               << name_of(out) << (ta == Transpose::yes) << (tb == Transpose::yes));
  const Tensor a = test::normal_tensor(stored(s.batch, s.M, s.K, ta), in, "a");
  const Tensor b = test::normal_tensor(stored(s.batch, s.K, s.N, tb), in, "b");
  const Tensor c = test::poisoned(stored(s.batch, s.M, s.N, Transpose::no), out);
  test::ProductReference expected = test::product_reference(a, b, ta, tb);
  matmul(c, a, b, ta, tb, Accumulate::no);
  REQUIRE(test::excess(c, expected) <= 1.0);

  expected.add(c);
  matmul(c, a, b, ta, tb, Accumulate::yes);
  REQUIRE(test::excess(c, expected) <= 1.0);
}

}  // namespace

TEST_CASE("matmul is the product in every dtype and transposition, overwriting and accumulating") {
  const test::Rank rank;
  for (const Size& s :
       {Size{0, 1, 1, 1}, Size{0, 5, 3, 7}, Size{0, 1, 37, 19}, Size{0, 17, 1, 9},
        Size{0, 33, 65, 31}, Size{3, 4, 6, 5}, Size{2, 1, 9, 4}, Size{1, 19, 18, 17}}) {
    for (const Transpose ta : kBoth) {
      for (const Transpose tb : kBoth) {
        for (const DType dtype : test::kFloating) check_product(s, dtype, dtype, ta, tb);
        check_product(s, DType::bf16, DType::f32, ta, tb);
        check_product(s, DType::f16, DType::f32, ta, tb);
        check_product(s, DType::f32, DType::bf16, ta, tb);
        check_product(s, DType::f32, DType::f16, ta, tb);
      }
    }
  }
}

TEST_CASE("matmul without a common dimension gives zeros or leaves the output") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const Tensor a = Tensor::empty({3, 0}, dtype), b = Tensor::empty({0, 2}, dtype);
    const Tensor c = test::poisoned({3, 2}, dtype);
    matmul(c, a, b);
    REQUIRE(test::to_doubles(c) == std::vector<double>(6, 0.0));
    const Tensor kept = test::normal_tensor({3, 2}, dtype, "c"), copy = kept.clone();
    matmul(kept, a, b, Transpose::no, Transpose::no, Accumulate::yes);
    REQUIRE(test::same_bits(kept, copy));
  }
}

TEST_CASE("matmul of empty outputs does nothing") {
  const test::Rank rank;
  matmul(Tensor::empty({0, 2}, DType::f32), Tensor::zeros({0, 3}, DType::f32),
         Tensor::zeros({3, 2}, DType::f32));
  matmul(Tensor::empty({0, 4, 2}, DType::bf16), Tensor::zeros({0, 4, 3}, DType::bf16),
         Tensor::zeros({0, 3, 2}, DType::bf16));
}

TEST_CASE("an f32 element is one chain of fused multiply-adds per piece of depth", "[cpu]") {
  const test::Rank rank;
  for (const auto& [N, K] : {std::pair{33, 320}, std::pair{17, 700}}) {
    const Tensor a = test::normal_tensor({7, K}, DType::f32, "a");
    const Tensor b = test::normal_tensor({K, N}, DType::f32, "b");
    const Tensor c = test::normal_tensor({7, N}, DType::f32, "c");
    const auto x = a.to_vector<float>(), y = b.to_vector<float>(), before = c.to_vector<float>();
    matmul(c, a, b, Transpose::no, Transpose::no, Accumulate::yes);
    const auto values = c.to_vector<float>();
    const std::int64_t depth = K == 320 ? 320 : 256;  // 700 is 256 + 256 + 188
    for (std::int64_t i = 0; i < 7 * N; ++i) {
      float expected = before[i];
      for (std::int64_t first = 0; first < K; first += depth) {
        float chain = 0.0f;
        for (std::int64_t k = first; k < std::min<std::int64_t>(K, first + depth); ++k) {
          chain = std::fma(x[i / N * K + k], y[k * N + i % N], chain);
        }
        expected += chain;
      }
      CHECK(values[i] == expected);
    }
  }
}

TEST_CASE("matmul passes infinities and NaN of its inputs on") {
  const test::Rank rank;
  const Tensor a = Tensor::from(std::vector<float>{INFINITY, 1.0f, NAN, 1.0f}, {2, 2});
  const Tensor b = Tensor::from(std::vector<float>{1.0f, 0.0f, 0.0f, 1.0f}, {2, 2});
  const Tensor c = Tensor::zeros({2, 2}, DType::f32);
  matmul(c, a, b);
  const auto values = c.to_vector<float>();
  REQUIRE(values[0] == INFINITY);
  REQUIRE(std::isnan(values[1]));  // inf * 0
  REQUIRE(std::isnan(values[2]));
}

TEST_CASE("matmul reads and writes slices at odd addresses") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    // Rows of 7 and 9 elements: the second row begins at no multiple of 16 bytes.
    const Tensor a = test::normal_tensor({6, 7}, dtype, "a").slice(1, 6);
    const Tensor b = test::normal_tensor({8, 9}, dtype, "b").slice(1, 8);
    const Tensor whole = test::poisoned({7, 9}, dtype), c = whole.slice(1, 6);
    const auto expected = test::product_reference(a, b);
    // Aligned first: the plan for these shapes must not be used for the odd addresses.
    matmul(test::poisoned({5, 9}, dtype), a.clone(), b.clone());
    matmul(c, a, b);
    REQUIRE(test::excess(c, expected) <= 1.0);
    for (const Tensor& row : {whole.slice(0, 1), whole.slice(6, 7)}) {
      for (const double value : test::to_doubles(row)) REQUIRE(std::isnan(value));
    }
  }
}

TEST_CASE("matmul of a batch of more products than a grid has rows") {
  const test::Rank rank;
  const std::int64_t batch = 65535 + 3;
  const Tensor a = test::normal_tensor({batch, 1, 2}, DType::bf16, "a");
  const Tensor b = test::normal_tensor({batch, 2, 1}, DType::bf16, "b");
  const Tensor c = test::poisoned({batch, 1, 1}, DType::f32);
  const auto expected = test::product_reference(a, b);
  matmul(c, a, b);
  REQUIRE(test::excess(c, expected) <= 1.0);
}

TEST_CASE("matmul gives equal bits to equal calls with other products in between") {
  const test::Rank rank;
  const Tensor a = test::normal_tensor({40, 200}, DType::bf16, "a");
  const Tensor b = test::normal_tensor({200, 24}, DType::bf16, "b");
  const Tensor first = test::poisoned({40, 24}, DType::f32);
  matmul(first, a, b);
  matmul(Tensor::empty({200, 200}, DType::f32), a, a, Transpose::yes);
  const Tensor again = test::poisoned({40, 24}, DType::f32);
  matmul(again, a, b);
  REQUIRE(test::same_bits(again, first));
  RankContext other({.device = test::device(), .threads = 1, .seed = 9});
  const ContextGuard guard(other);
  const Tensor elsewhere = test::poisoned({40, 24}, DType::f32);
  matmul(elsewhere, a, b);
  REQUIRE(test::same_bits(elsewhere, first));
}

TEST_CASE("matmul with the algorithm that measured fastest is the product too") {
  RankContext context({.device = test::device(), .threads = 1});
  const ContextGuard guard(context);
  matmul_options().choice = AlgorithmChoice::measured;
  const auto other = context.allocator().account()[Category::other].current;
  for (const Size& s : {Size{0, 33, 65, 48}, Size{3, 4, 6, 20}}) {
    check_product(s, DType::bf16, DType::f32, Transpose::no, Transpose::yes);
    check_product(s, DType::bf16, DType::bf16, Transpose::yes, Transpose::no);
  }
  REQUIRE(context.allocator().account()[Category::other].current == other);
}

TEST_CASE("matmul of f32 is rounded to tf32 at most, and only if that is allowed") {
  RankContext context({.device = test::device(), .threads = 1});
  const ContextGuard guard(context);
  matmul_options().tf32 = true;
  const Tensor a = test::normal_tensor({64, 32}, DType::f32, "a");
  const Tensor b = test::normal_tensor({32, 64}, DType::f32, "b");
  const Tensor c = test::poisoned({64, 64}, DType::f32);
  const auto expected = test::product_reference(a, b);
  matmul(c, a, b);
  const auto values = test::to_doubles(c);
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Each factor may lose what is below its 11th significant bit.
    REQUIRE(std::fabs(values[i] - expected.value[i]) <= 2.1 * 0x1p-10 * expected.magnitude[i]);
  }
}

TEST_CASE("matmul's workspace on a GPU is a fixed room per stream") {
  if (!test::kOnGpu) return;
  test::Rank rank;
  auto& allocator = rank.context.allocator();
  const Tensor a = Tensor::zeros({8, 4}, DType::bf16), b = Tensor::zeros({4, 2}, DType::bf16);
  const Tensor c = Tensor::zeros({8, 2}, DType::f32);
  const auto workspace = [&] { return allocator.account()[Category::workspace]; };
  constexpr std::int64_t kRoom = cuda::kGemmWorkspaceBytes;
  matmul(c, a, b);
  matmul(c, a, b);
  REQUIRE(workspace().peak == kRoom);
  REQUIRE(workspace().current == kRoom);
  const StreamGuard guard(rank.context.side_stream("other"));
  current_stream().wait(rank.context.compute_stream().record());
  matmul(c, a, b);
  REQUIRE(workspace().current == 2 * kRoom);
}

TEST_CASE("matmul refuses arguments that do not fit together") {
  const test::Rank rank;
  const auto zeros = [](const Shape& shape, DType dtype = DType::f32) {
    return Tensor::zeros(shape, dtype);
  };
  const Tensor c = zeros({2, 4}), a = zeros({2, 3}), b = zeros({3, 4});
  REQUIRE_THROWS_WITH(
      matmul(c, a, zeros({4, 3})),
      Catch::Contains("matmul: op(a) [2, 3] times op(b) [4, 3] does not give c f32 [2, 4]"));
  REQUIRE_THROWS_WITH(matmul(c, a, b, Transpose::yes), Catch::Contains("op(a) [3, 2]"));
  REQUIRE_THROWS_WITH(matmul(zeros({4, 2}), a, b), Catch::Contains("does not give c"));
  REQUIRE_THROWS_WITH(matmul(zeros({2, 2, 4}), zeros({2, 2, 3}), zeros({3, 3, 4})),
                      Catch::Contains("batch dimension"));
  REQUIRE_THROWS_WITH(matmul(c, a, zeros({1, 3, 4})), Catch::Contains("does not give c"));
  REQUIRE_THROWS_WITH(matmul(c, zeros({3}), b), Catch::Contains("both must be matrices"));
  REQUIRE_THROWS_WITH(matmul(c, a, zeros({3, 4}, DType::bf16)),
                      Catch::Contains("dtypes must be equal"));
  REQUIRE_THROWS_WITH(
      matmul(zeros({2, 4}, DType::f16), zeros({2, 3}, DType::bf16), zeros({3, 4}, DType::bf16)),
      Catch::Contains("c must have the same dtype"));
  REQUIRE_THROWS_WITH(matmul(a, a, zeros({3, 3})), Catch::Contains("matmul: c overlaps a"));
  if constexpr (kHasCuda) {  // a product that the library lacks
    if (!test::kOnGpu) return;
    const cuda::Gemm overlapping_rows{.M = 2, .N = 4, .K = 3, .c_stride = 3};
    const cuda::GemmMatrices at{a.raw(), b.raw(), c.raw()};
    REQUIRE_FALSE(cuda::try_gemm(overlapping_rows, at));
    REQUIRE_THROWS_WITH(cuda::gemm(overlapping_rows, at),
                        Catch::Contains("no algorithm for f32 [2, 4] = op(f32 [2, 3]) op([3, 4])"));
  }
}

TEST_CASE("matmul refuses to round f64", "[cpu]") {
  const test::Rank rank;
  const auto zeros = [](const Shape& shape, DType dtype) { return Tensor::zeros(shape, dtype); };
  REQUIRE_THROWS_WITH(
      matmul(zeros({2, 4}, DType::f64), zeros({2, 3}, DType::f32), zeros({3, 4}, DType::f32)),
      Catch::Contains("c must have the same dtype"));
  REQUIRE_THROWS_WITH(
      matmul(zeros({2, 4}, DType::bf16), zeros({2, 3}, DType::f64), zeros({3, 4}, DType::f64)),
      Catch::Contains("a is f64 [2, 3] and c is bf16 [2, 4]"));
}

}  // namespace tessera
