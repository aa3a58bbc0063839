#include <catch2/catch.hpp>

#include "kernels/bias/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

std::vector<double> column_sums(const Tensor& dy) {
  const auto C = static_cast<std::size_t>(dy.size(-1));
  const auto values = test::to_doubles(dy);
  std::vector<double> sums(C, 0.0);
  for (std::size_t i = 0; i < values.size(); ++i) sums[i % C] += values[i];
  return sums;
}

const Shape kShapes[] = {{1, 1}, {3, 5}, {2, 65, 33}, {200, 1030}, {20, 9001}, {0, 7}, {9}};

}  // namespace

TEST_CASE("bias_forward adds the vector to every row") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    for (const Shape& shape : kShapes) {
      const Tensor y = test::normal_tensor(shape, dtype, "y");
      const Tensor bias = test::normal_tensor({shape[-1]}, dtype, "bias");
      auto expected = test::to_doubles(y);
      const auto b = test::to_doubles(bias);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += b[i % b.size()];
      bias_forward(y, bias);
      REQUIRE(test::worst_error(test::to_doubles(y), expected, 1e-6) <=
              1.001 * test::unit_roundoff(dtype));
    }
  }
}

TEST_CASE("bias_backward sums over rows, overwriting or accumulating") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const DType arithmetic = dtype == DType::f64 ? DType::f64 : DType::f32;
    for (const DType sum_dtype : {dtype, size_of(dtype) == 2 ? DType::f32 : dtype}) {
      for (const Shape& shape : kShapes) {
        const Tensor dy = test::normal_tensor(shape, dtype, "dy");
        const Tensor dbias = test::poisoned({shape[-1]}, sum_dtype);
        auto expected = column_sums(dy);
        // At most 200 additions to sums of N(0, 1), which stay below 60, then one rounding.
        const double tolerance = test::unit_roundoff(sum_dtype) +
                                 60.0 * std::sqrt(200.0) * test::unit_roundoff(arithmetic);
        bias_backward(dbias, dy, Accumulate::no);
        REQUIRE(test::worst_error(test::to_doubles(dbias), expected, 1.0) <= tolerance);

        const auto before = test::to_doubles(dbias);
        for (std::size_t c = 0; c < expected.size(); ++c) expected[c] += before[c];
        bias_backward(dbias, dy, Accumulate::yes);
        REQUIRE(test::worst_error(test::to_doubles(dbias), expected, 1.0) <= tolerance);
      }
    }
  }
}

TEST_CASE("bias has the same bits under every schedule, and wherever the tensors lie") {
  const test::Rank owner;  // the tensors outlive the contexts of the schedules
  std::vector<Tensor> first;
  for (const bool moved : {false, true}) {
    const auto results = test::under_every_schedule([&] {
      Tensor y = test::normal_tensor({317, 520}, DType::bf16, "y");
      Tensor bias = test::normal_tensor({520}, DType::bf16, "bias");
      if (moved) {
        y = test::unaligned(y);
        bias = test::unaligned(bias);
      }
      const Tensor dbias = test::poisoned({520}, DType::f32);
      bias_forward(y, bias);
      bias_backward(dbias, y, Accumulate::no);
      return std::vector<Tensor>{y, dbias};
    });
    if (first.empty()) first = results[0];
    for (const auto& tensors : results) {
      for (std::size_t i = 0; i < first.size(); ++i) {
        REQUIRE(test::same_bits(tensors[i], first[i]));
      }
    }
  }
}

TEST_CASE("bias_backward of many rows of one column, and of many columns") {
  const test::Rank rank;
  for (const Shape& shape : {Shape{40'000, 1}, Shape{3, 9001}}) {
    const Tensor dy = test::normal_tensor(shape, DType::f32, "dy");
    const Tensor dbias = test::poisoned({shape[1]}, DType::f32);
    bias_backward(dbias, dy, Accumulate::no);
    // The partial sums of normal values stay below 4 sqrt(rows).
    const double rows = static_cast<double>(shape[0]);
    REQUIRE(test::worst_error(test::to_doubles(dbias), column_sums(dy), 1.0) <=
            4.0 * rows * 0x1p-24);
  }
}

TEST_CASE("bias_backward charges its scratch memory to the workspace and releases it") {
  test::Rank rank;
  const Tensor dy = Tensor::zeros({128, 32}, DType::bf16), dbias = Tensor::zeros({32}, DType::f32);
  bias_backward(dbias, dy, Accumulate::no);
  const auto account = rank.context.allocator().account();
  const int lines =
      test::kOnGpu ? 16 : 2;  // of partial sums: one per 8 rows on a GPU, per 64 on the CPU
  REQUIRE(account[Category::workspace].peak == lines * 32 * 4);
  REQUIRE(account[Category::workspace].current == 0);
}

TEST_CASE("bias refuses arguments that do not fit together") {
  const test::Rank rank;
  const Tensor y = Tensor::zeros({2, 3}, DType::f32);
  REQUIRE_THROWS_WITH(bias_forward(y, Tensor::zeros({2}, DType::f32)),
                      Catch::Contains("bias_forward: bias is f32 [2]; its shape must be [3]"));
  REQUIRE_THROWS_WITH(bias_forward(Tensor::zeros({}, DType::f32), y),
                      Catch::Contains("at least 1 dimension"));
  REQUIRE_THROWS_WITH(bias_backward(Tensor::zeros({3}, DType::bf16), y, Accumulate::no),
                      Catch::Contains("or f32 if dy has 16 bits"));
  REQUIRE_THROWS_WITH(bias_forward(y, y.slice(0, 1).reshape({3})),
                      Catch::Contains("bias overlaps y"));
}

}  // namespace tessera
