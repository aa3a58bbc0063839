// The rules of cuBLASLt for scales of blocks, and the sums of such products.
#include <catch2/catch.hpp>

#include "kernels/cuda/gemm.h"
#include "kernels/linear/factor.h"
#include "tests/kernels/fp8_factor.h"
#include "tests/kernels/product_reference.h"
#include "tests/support/emulated_capability.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

/// Rows in 8 bits with scales of blocks.
Factor factor(const Shape& shape, Fp8Blocks blocks, const std::string& name) {
  const Tensor numbers = Tensor::zeros(shape, DType::e4m3),
               inverse = Tensor::zeros(fp8_scales_shape(blocks, shape[0], shape[1]), DType::f32);
  fp8_quantize_blocks(numbers, inverse, {}, {}, test::normal_tensor(shape, DType::bf16, name),
                      blocks);
  Factor rows(numbers, inverse);
  rows.blocks = blocks;
  return rows;
}

bool multiplies(std::int64_t rows, Fp8Blocks a, Fp8Blocks b) {
  const test::Rank rank;
  const Tensor y = Tensor::zeros({rows, 32}, DType::bf16);
  return cuda::fp8_product(y, factor({rows, 16}, a, "a"), Transpose::no, factor({32, 16}, b, "b"),
                           Transpose::yes, {}, {});
}

/// The same product with the scales `shift` numbers behind their place, which the library has to look at.
bool library_takes(Fp8Blocks a, Fp8Blocks b, std::int64_t rows, std::int64_t shift) {
  const test::Rank rank;
  const Tensor memory = Tensor::zeros({rows * 16 + 32 * 16}, DType::e4m3),
               scales = Tensor::full({1024}, DType::f32, 1.0),
               y = Tensor::zeros({rows, 32}, DType::bf16);
  const cuda::Gemm product{.M = rows,
                           .N = 32,
                           .K = 16,
                           .transpose_b = true,
                           .in = DType::e4m3,
                           .a_blocks = a,
                           .b_blocks = b,
                           .out = DType::bf16};
  return cuda::try_gemm(product, {.a = memory.raw(),
                                  .b = memory.slice(rows * 16, memory.numel()).raw(),
                                  .c = y.raw(),
                                  .a_scale = scales.data<float>() + shift,
                                  .b_scale = scales.data<float>()});
}

}  // namespace

TEST_CASE("8-bit products with scales of blocks are for architecture 9.0") {
  for (const int capability : {89, 90, 100}) {
    CAPTURE(capability);
    const test::Capability guard(capability);
    CHECK(multiplies(16, Fp8Blocks::vectors, Fp8Blocks::squares) == (capability == 90));
    CHECK(library_takes(Fp8Blocks::vectors, Fp8Blocks::squares, 16, 0) == (capability == 90));
    CHECK(library_takes(Fp8Blocks::tensor, Fp8Blocks::tensor, 16, 0));
  }
}

TEST_CASE("8-bit products with scales of blocks: cuBLASLt refuses some") {
  CHECK(library_takes(Fp8Blocks::vectors, Fp8Blocks::vectors, 16, 0));
  CHECK(library_takes(Fp8Blocks::squares, Fp8Blocks::vectors, 16, 0));
  CHECK_FALSE(library_takes(Fp8Blocks::squares, Fp8Blocks::squares, 16, 0));
  CHECK_FALSE(library_takes(Fp8Blocks::vectors, Fp8Blocks::squares, 6, 0));
  CHECK_THROWS_WITH(library_takes(Fp8Blocks::vectors, Fp8Blocks::squares, 16, 1),
                    Catch::Contains("CUBLAS_STATUS_INVALID_VALUE"));
}

TEST_CASE("8-bit products with scales of blocks have sums of 14 bits, as others have") {
  emulation::DeviceOptions narrow = emulation::device_options();
  narrow.narrow_sums = true;
  const emulation::DeviceOptionsGuard guard(narrow);
  const test::Rank rank;
  const Factor a = factor({64, 512}, Fp8Blocks::vectors, "a"),
               b = factor({128, 512}, Fp8Blocks::squares, "b");
  const Tensor y = test::poisoned({64, 128}, DType::f32);
  REQUIRE(cuda::fp8_product(y, a, Transpose::no, b, Transpose::yes, {}, {}));
  const auto expected =
      test::product_reference(expanded(a), expanded(b), Transpose::no, Transpose::yes).value;
  const double error = test::relative_error(test::to_doubles(y), expected);
  CHECK(error < test::kFp8Bound);
  CHECK(error > 0x1p-16);
}

}  // namespace tessera
