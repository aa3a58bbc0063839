// The CPU's own products: every instruction set, every way through the panels.
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/grouped_matmul/op.h"
#include "kernels/matmul/cpu/product.h"
#include "kernels/matmul/cpu/rounds.h"
#include "kernels/matmul/op.h"
#include "kernels/matmul/options.h"
#include "tests/kernels/product_reference.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using cpu::Isa;

constexpr Transpose kBoth[] = {Transpose::no, Transpose::yes};

struct Size {
  std::int64_t M, N, K;
};

/// The ways through the panels: single elements; all the last rows and columns of a tile; few rows
/// with and without panels of b; blocks; several pieces of depth; several rounds of columns; of rows
/// and of depth; columns that are worth packing rows for.
constexpr Size kSizes[] = {{1, 1, 1},      {3, 5, 7},        {5, 37, 33},      {23, 50, 65},
                           {26, 97, 31},   {193, 49, 35},    {200, 131, 97},   {9, 70, 330},
                           {210, 65, 600}, {196, 230, 1291}, {700, 240, 1291}, {7, 50, 1291},
                           {19, 70, 96},   {130, 40, 64},    {40, 35, 512},    {98, 1545, 33}};

/// Large products are multiplied in f32 and f64, with one factor transposed.
bool is_left_out(const Size& s, DType in, Transpose ta, Transpose tb) {
  return s.K > 1000 && (size_of(in) == 2 || ta == tb);
}

/// Whether the portable level calls a function for every fused multiply-add.
#if defined(__FMA__) || defined(__aarch64__)
constexpr bool kPortableIsSlow = false;  // as in the builds with sanitizers
#else
constexpr bool kPortableIsSlow = true;
#endif

/// The levels with a kernel of their own for the dtype. A slow one is left out of large products.
std::vector<Isa> isas_for(DType dtype, const Size& s = {}) {
  const bool is_large = s.M * s.N * s.K > 5'000'000;
  std::vector<Isa> isas = cpu::available_isas();
  std::erase_if(isas, [&](Isa isa) {
    const bool is_for_bf16 =
        isa == Isa::avx512_bf16 || isa == Isa::amx || isa == Isa::software_tiles;
    return (dtype != DType::bf16 && is_for_bf16) ||
           (isa == Isa::portable && is_large && kPortableIsSlow);
  });
  return isas;
}

Shape stored(std::int64_t rows, std::int64_t columns, Transpose transpose) {
  return transpose == Transpose::yes ? Shape{columns, rows} : Shape{rows, columns};
}

struct Operands {
  Tensor a, b, before;
};

Operands operands_of(const Size& s, DType dtype, Transpose ta, Transpose tb, DType out) {
  constexpr double kThird = 1.0 / 3.0;  // no short fraction, so that f64 rounds products too
  return {test::normal_tensor(stored(s.M, s.K, ta), dtype, "a", kThird),
          test::normal_tensor(stored(s.K, s.N, tb), dtype, "b", kThird),
          test::normal_tensor({s.M, s.N}, out, "c")};
}

Tensor product_of(const Operands& x, Transpose ta, Transpose tb, Accumulate accumulate) {
  const Tensor c = x.before.clone();
  matmul(c, x.a, x.b, ta, tb, accumulate);
  return c;
}

test::ProductReference reference_of(const Operands& x, Transpose ta, Transpose tb,
                                    Accumulate accumulate) {
  test::ProductReference reference = test::product_reference(x.a, x.b, ta, tb);
  if (accumulate == Accumulate::yes) reference.add(x.before);
  return reference;
}

}  // namespace

TEST_CASE("a level of the CPU has a micro-kernel of its own, and others' sizes are known",
          "[cpu]") {
#if defined(__aarch64__)
  CHECK(cpu::best_isa() == Isa::neon);
#endif
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::neon}) {
      if (!cpu::has_isa(isa)) continue;
      CAPTURE(name_of(dtype), enum_name(isa));
      CHECK(&cpu::engine_for(isa, dtype) != &cpu::engine_for(Isa::portable, dtype));
    }
    // Workspace is taken for the largest, so it must not depend on the CPU or the compiler.
    std::vector<int> columns;
    for (const cpu::Engine* engine : cpu::engines_of_all_levels(dtype)) {
      columns.push_back(engine->columns * static_cast<int>(size_of(dtype)));
    }
    CHECK(columns == std::vector<int>{32, 64, 192, 96});  // portable, avx2, avx512, neon
  }
}

TEST_CASE(
    "products are right on every instruction set, by every way, with the same bits in f32 and f64",
    "[cpu]") {
  const test::Rank rank;
  for (const Size& s : kSizes) {
    for (const Transpose ta : kBoth) {
      for (const Transpose tb : kBoth) {
        for (const auto& [in, out] :
             {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::f32},
              std::pair{DType::bf16, DType::bf16}, std::pair{DType::f16, DType::f16},
              std::pair{DType::f64, DType::f64}, std::pair{DType::f32, DType::bf16}}) {
          if (is_left_out(s, in, ta, tb)) continue;
          const Accumulate accumulate = s.K % 2 == 0 ? Accumulate::yes : Accumulate::no;
          const Operands x = operands_of(s, in, ta, tb, out);
          const auto expected = reference_of(x, ta, tb, accumulate);
          std::optional<Tensor> first;
          for (const Isa isa : isas_for(in, s)) {
            CAPTURE(enum_name(isa), s.M, s.N, s.K, name_of(in), name_of(out), ta == Transpose::yes,
                    tb == Transpose::yes);
            matmul_options().isa = isa;
            const Tensor c = product_of(x, ta, tb, accumulate);
            CHECK(test::excess(c, expected) <= 1.0);
            if (!first) first = c;
            if (size_of(in) != 2) CHECK(test::same_bits(c, *first));
          }
        }
      }
    }
  }
}

TEST_CASE("products have the same bits for any number of threads, on every instruction set",
          "[cpu]") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Isa isa : isas_for(dtype)) {
      for (const Transpose ta : kBoth) {
        std::vector<std::vector<double>> results;
        for (const int threads : {1, 2, 3, 8}) {
          const test::Rank rank(threads);
          matmul_options().isa = isa;
          const Operands x = operands_of({200, 110, 330}, dtype, ta, Transpose::no, dtype);
          results.push_back(test::to_doubles(product_of(x, ta, Transpose::no, Accumulate::no)));
        }
        for (const auto& result : results) CHECK(results[0] == result);
      }
    }
  }
}

TEST_CASE("a row has the same bits whatever rows are computed with it, on every instruction set",
          "[cpu]") {
  const test::Rank rank;
  // Depths of one piece and of several, columns in whole strips and not, rows that share panels.
  for (const Size& s : {Size{70, 5, 3}, Size{70, 64, 320}, Size{70, 130, 321}, Size{70, 512, 1000},
                        Size{230, 50, 700}}) {
    for (const DType dtype : test::kFloating) {
      for (const Isa isa : isas_for(dtype, s)) {
        matmul_options().isa = isa;
        for (const Transpose tb : kBoth) {
          const Operands x = operands_of(s, dtype, Transpose::no, tb, dtype);
          const Tensor whole = product_of(x, Transpose::no, tb, Accumulate::no);
          for (const auto& [first, last] : {std::pair<std::int64_t, std::int64_t>{0, 1},
                                            {s.M - 1, s.M},
                                            {3, 5},
                                            {3, 28},
                                            {2, 40}}) {
            CAPTURE(enum_name(isa), name_of(dtype), s.N, s.K, tb == Transpose::yes, first, last);
            const Operands rows = {x.a.slice(first, last), x.b, x.before.slice(first, last)};
            CHECK(test::same_bits(product_of(rows, Transpose::no, tb, Accumulate::no),
                                  whole.slice(first, last)));
          }
        }
      }
    }
  }
}

TEST_CASE("tiles in software have the bits of AMX", "[cpu]") {
  if (cpu::best_isa() != Isa::amx) return;
  const test::Rank rank;
  // With factors of 2^-63 some products and sums are denormal.
  for (const float factor : {1.0f, 0x1p-63f}) {
    Operands x = operands_of({45, 37, 1100}, DType::bf16, Transpose::no, Transpose::no, DType::f32);
    for (const Tensor& matrix : {x.a, x.b}) {
      auto* const elements = matrix.data<bfloat16>();
      for (std::int64_t i = 0; i < matrix.numel(); ++i) {
        elements[i] = bfloat16(static_cast<float>(elements[i]) * factor);
      }
    }
    matmul_options().isa = Isa::amx;
    const Tensor expected = product_of(x, Transpose::no, Transpose::no, Accumulate::no);
    matmul_options().isa = Isa::software_tiles;
    CHECK(test::same_bits(product_of(x, Transpose::no, Transpose::no, Accumulate::no), expected));
  }
}

TEST_CASE("rows of a factor and of the result may lie apart", "[cpu]") {
  const test::Rank rank;
  for (const Isa isa : cpu::available_isas()) {
    matmul_options().isa = isa;
    for (const Size& s : {Size{5, 50, 30}, Size{200, 70, 330}}) {
      for (const Transpose ta : kBoth) {
        for (const Transpose tb : kBoth) {
          for (const DType dtype : {DType::f32, DType::bf16}) {
            CAPTURE(enum_name(isa), s.M, s.N, s.K, name_of(dtype));
            const Operands x = operands_of(s, dtype, ta, tb, dtype);
            const Tensor expected = product_of(x, ta, tb, Accumulate::no);
            // The same matrices with some elements more in every row.
            const auto widen = [&](const Tensor& matrix, std::int64_t more) {
              const Tensor wide =
                  test::poisoned({matrix.size(0), matrix.size(1) + more}, matrix.dtype());
              const auto bytes = static_cast<std::size_t>(matrix.size(1)) * size_of(matrix.dtype());
              for (std::int64_t i = 0; i < matrix.size(0); ++i) {
                std::memcpy(cpu::element(wide, i * wide.size(1)),
                            cpu::element(matrix, i * matrix.size(1)), bytes);
              }
              return wide;
            };
            const Tensor a = widen(x.a, 3), b = widen(x.b, 5);
            const Tensor c = test::poisoned({s.M, s.N + 7}, dtype);
            const cpu::Product product = {.M = s.M,
                                          .N = s.N,
                                          .K = s.K,
                                          .a = a.raw(),
                                          .b = b.raw(),
                                          .c = c.raw(),
                                          .a_row = a.size(1),
                                          .b_row = b.size(1),
                                          .c_row = c.size(1)};
            cpu::multiply_all({&product, 1}, {.in = dtype,
                                              .out = dtype,
                                              .transpose_a = ta == Transpose::yes,
                                              .transpose_b = tb == Transpose::yes,
                                              .M = s.M,
                                              .N = s.N,
                                              .K = s.K,
                                              .count = 1,
                                              .rows = s.M});
            CHECK(test::same_bits(c, widen(expected, 7)));
          }
        }
      }
    }
  }
}

TEST_CASE("a dry run takes the workspace of the products, the same at every level", "[cpu]") {
  const auto peak = [](bool dry, const Size& s, Transpose ta, DType in, DType out, int threads,
                       Isa isa = cpu::best_isa()) {
    RankContext context({.device = test::device(), .threads = threads, .seed = 1, .dry = dry});
    const ContextGuard guard(context);
    matmul_options().isa = isa;
    const Tensor c = Tensor::empty({s.M, s.N}, out);
    matmul(c, Tensor::empty(stored(s.M, s.K, ta), in), Tensor::empty({s.K, s.N}, in), ta);
    CHECK(context.allocator().account()[Category::workspace].current == 0);
    return context.allocator().account()[Category::workspace].peak;
  };
  for (const Size& s : {Size{3, 5, 7}, Size{23, 50, 65}, Size{200, 131, 97}, Size{196, 230, 1291},
                        Size{98, 1545, 33}}) {
    for (const Transpose ta : kBoth) {
      for (const auto& [in, out] :
           {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::f32},
            std::pair{DType::bf16, DType::bf16}}) {
        CAPTURE(s.M, s.N, s.K, name_of(in), name_of(out));
        const std::int64_t bytes = peak(true, s, ta, in, out, 3);
        CHECK(bytes == peak(false, s, ta, in, out, 3));
        for (const Isa isa : isas_for(in)) {
          CAPTURE(enum_name(isa));
          CHECK(peak(true, s, ta, in, out, 3, isa) == bytes);
        }
      }
    }
  }
  // The panels of a large product do not grow with it: 6 MiB, and half of a cache or two panels.
  const auto megabytes = [](std::int64_t bytes) { return bytes >> 20; };
  CHECK(megabytes(peak(true, {8192, 3072, 8192}, Transpose::yes, DType::f32, DType::f32, 1)) < 12);
}

TEST_CASE("the workspace of grouped products does not depend on the rows of the experts", "[cpu]") {
  test::Rank rank;
  const auto peak = [&](std::int32_t rows, const std::vector<std::int32_t>& offsets, bool weight) {
    auto& account = rank.context.allocator();
    const Tensor x = Tensor::zeros({rows, 96}, DType::bf16),
                 y = Tensor::zeros({rows, 80}, DType::bf16);
    const Tensor matrices = Tensor::zeros({4, 96, 80}, DType::bf16);
    const Tensor at = Tensor::from(offsets, {5});
    account.reset_peaks();
    weight ? grouped_matmul_weight(matrices, x, y, at) : grouped_matmul(y, x, matrices, at);
    return account.account()[Category::workspace].peak;
  };
  for (const bool weight : {false, true}) {
    for (const std::int32_t rows : {500, 4500}) {
      const auto even = peak(rows, {0, 125, 250, 375, 500}, weight);
      CHECK(even > 0);
      CHECK(peak(rows, {0, rows, rows, rows, rows}, weight) == even);
      CHECK(peak(rows, {0, 0, 0, 0, 1}, weight) == even);
      CHECK(peak(rows, {0, 0, 0, 0, 0}, weight) == even);
    }
  }
}

TEST_CASE("OpenBLAS computes the same products", "[cpu]") {
  const test::Rank rank;
  matmul_options().library = MatmulLibrary::openblas;
  for (const Size& s : {Size{5, 37, 33}, Size{400, 390, 20}}) {
    for (const Transpose ta : kBoth) {
      for (const Transpose tb : kBoth) {
        for (const auto& [in, out] :
             {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::bf16},
              std::pair{DType::f64, DType::f64}, std::pair{DType::f16, DType::f32}}) {
          for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
            const Operands x = operands_of(s, in, ta, tb, out);
            CHECK(test::excess(product_of(x, ta, tb, accumulate),
                               reference_of(x, ta, tb, accumulate)) <= 1.0);
          }
        }
      }
    }
  }
}

}  // namespace tessera
