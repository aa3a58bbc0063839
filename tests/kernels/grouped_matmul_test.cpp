#include "kernels/grouped_matmul/op.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "kernels/matmul/op.h"
#include "kernels/matmul/options.h"
#include "kernels/swiglu/op.h"
#include "tests/kernels/product_reference.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::to_doubles;

constexpr Transpose kBoth[] = {Transpose::no, Transpose::yes};

/// The rows of each expert, a's columns and the weight's other extent.
struct Sizes {
  std::vector<std::int32_t> counts;
  std::int64_t in, out;

  std::int64_t experts() const { return static_cast<std::int64_t>(counts.size()); }
  std::int64_t rows() const { return std::accumulate(counts.begin(), counts.end(), 0); }
  Tensor offsets() const {
    std::vector<std::int32_t> values{0};
    for (const std::int32_t count : counts) values.push_back(values.back() + count);
    return Tensor::from(values, {experts() + 1});
  }
};

std::vector<std::int32_t> thin(std::int64_t experts) {
  std::vector<std::int32_t> counts;
  for (std::int32_t e = 0; e < experts; ++e) counts.push_back(e % 3 == 1 ? e % 5 : 0);
  return counts;
}

const std::vector<Sizes> kSizes = {
    {{1}, 1, 1},        {{3, 0, 5}, 7, 9},  {{0, 0, 70, 1}, 17, 66}, {{129, 0, 2, 64}, 72, 136},
    {{5, 130}, 128, 8}, {thin(70), 24, 40}, {{0, 0}, 8, 8},          {{}, 8, 8},
    {{2, 3}, 0, 8},     {{2, 3}, 8, 0},     {{40, 3}, 264, 24}};

struct Reference {
  test::ProductReference y, dx, dweight;
};

/// The three products of a linear layer with weights [E, in, out].
Reference reference(const Sizes& n, const Tensor& x, const Tensor& weight, const Tensor& dy) {
  Reference r;
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < n.experts(); ++e) {
    const std::int64_t end = row + n.counts[e];
    const Tensor rows = x.slice(row, end), dy_rows = dy.slice(row, end);
    const Tensor matrix = weight.slice(e, e + 1).reshape({n.in, n.out});
    r.y.append(test::product_reference(rows, matrix));
    r.dx.append(test::product_reference(dy_rows, matrix, Transpose::no, Transpose::yes));
    r.dweight.append(test::product_reference(rows, dy_rows, Transpose::yes));
    row = end;
  }
  return r;
}

/// [E, in, out] as [E, out, in].
Tensor swapped(const Tensor& weight) {
  const auto values = to_doubles(weight);
  const std::int64_t E = weight.size(0), in = weight.size(1), out = weight.size(2);
  std::vector<double> result(values.size());
  for (std::int64_t i = 0; i < weight.numel(); ++i) {
    const std::int64_t e = i / (in * out), a = i / out % in, b = i % out;
    result[(e * out + b) * in + a] = values[i];
  }
  return test::tensor_of(result, {E, out, in}, weight.dtype());
}

Tensor product(const Tensor& a, const Tensor& b, const Tensor& offsets, Transpose transpose) {
  const Tensor c =
      test::poisoned({a.size(0), b.size(transpose == Transpose::yes ? 1 : 2)}, a.dtype());
  grouped_matmul(c, a, b, offsets, transpose);
  return c;
}

Tensor swiglu_of(const Tensor& gate_up) {
  const Tensor y = test::poisoned({gate_up.size(0), gate_up.size(1) / 2}, gate_up.dtype());
  swiglu_forward(y, first_half(gate_up), second_half(gate_up));
  return y;
}

/// y and gate_up.
std::pair<Tensor, Tensor> swiglu_product(const Tensor& a, const Tensor& b, const Tensor& offsets,
                                         Transpose transpose) {
  const std::int64_t N = b.size(transpose == Transpose::yes ? 1 : 2);
  const Tensor y = test::poisoned({a.size(0), N / 2}, a.dtype());
  const Tensor gate_up = test::poisoned({a.size(0), N}, a.dtype());
  grouped_matmul_swiglu(y, gate_up, a, b, offsets, transpose);
  return {y, gate_up};
}

void check_products(const Sizes& n, DType dtype) {
  const Tensor x = normal_tensor({n.rows(), n.in}, dtype, "x");
  const Tensor weight = normal_tensor({n.experts(), n.in, n.out}, dtype, "weight");
  const Tensor dy = normal_tensor({n.rows(), n.out}, dtype, "dy");
  const Tensor offsets = n.offsets();
  const Reference r = reference(n, x, weight, dy);
  for (const Transpose stored : kBoth) {
    const bool swap = stored == Transpose::yes;
    const Tensor w = swap ? swapped(weight) : weight;
    CHECK(test::excess(product(x, w, offsets, stored), r.y) <= 1.0);
    CHECK(test::excess(product(dy, w, offsets, opposite(stored)), r.dx) <= 1.0);
  }
  for (const DType to : {dtype, statistics_dtype(dtype)}) {
    const Tensor dw = test::poisoned(weight.shape(), to);
    grouped_matmul_weight(dw, x, dy, offsets);
    CHECK(test::excess(dw, r.dweight) <= 1.0);
    auto twice = r.dweight;
    twice.add(dw);
    grouped_matmul_weight(dw, x, dy, offsets, Accumulate::yes);
    CHECK(test::excess(dw, twice) <= 1.0);
  }
}

}  // namespace

TEST_CASE(
    "grouped_matmul: every expert's products, in every dtype, size and layout of the weight") {
  for (const DType dtype : test::kFloating) {
    for (const Sizes& n : kSizes) {
      CAPTURE(name_of(dtype), n.counts, n.in, n.out);
      test::for_every_schedule([&] { check_products(n, dtype); });
    }
  }
}

// On a GPU: more tiles than multiprocessors, wide tiles in every direction, tails of all three extents,
// and a weight of many tiles.
TEST_CASE("grouped_matmul of several rounds of wide tiles") {
  const test::Rank rank;
  for (const Sizes& n : {Sizes{{130, 0, 7}, 136, 520}, Sizes{{3}, 1032, 1000}}) {
    CAPTURE(n.counts, n.in, n.out);
    check_products(n, DType::bf16);
  }
}

// On Hopper two tiles of an expert below each other share a weight's tile. Here the last ones have no partner with
// rows, in each of the three products, and an expert has one tile.
TEST_CASE("grouped_matmul of many rows, in pairs of tiles, has the bits of few") {
  test::for_every_schedule([] {
    const Sizes n{{100, 1828}, 72, 136};
    check_products(n, DType::bf16);
    const Tensor x = normal_tensor({n.rows(), n.in}, DType::bf16, "x");
    const Tensor weight = normal_tensor({n.experts(), n.in, n.out}, DType::bf16, "weight");
    const Tensor all = product(x, weight, n.offsets(), Transpose::no);
    const Tensor some =
        product(x.slice(0, 230), weight, Sizes{{100, 130}, 1, 1}.offsets(), Transpose::no);
    CHECK(test::same_bits(all.slice(0, 230), some));
  });
}

TEST_CASE("grouped_matmul of many channels, in pairs of tiles") {
  const test::Rank rank;
  for (const Sizes& n : {Sizes{{129, 0, 2}, 256, 136}, Sizes{{3, 5}, 2056, 8}}) {
    check_products(n, DType::bf16);
  }
}

// On the CPU a weight's gradient of more than 4,096 rows is summed apart from c, and rounded then.
TEST_CASE(
    "grouped_matmul of deep and shallow experts, and a shallow one's bits next to a deep one") {
  const test::Rank rank;
  // A round takes more depth of the sum of 1,280 than of one of 1,281.
  check_products({{1280, 1}, 40, 48}, DType::f32);
  const Sizes n{{30, 4100, 0, 70}, 16, 24};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check_products(n, dtype);
    const Tensor x = normal_tensor({4200, n.in}, dtype, "x"),
                 dy = normal_tensor({4200, n.out}, dtype, "dy");
    const Tensor all = test::poisoned({4, n.in, n.out}, dtype);
    grouped_matmul_weight(all, x, dy, n.offsets());
    const Tensor alone = test::poisoned({1, n.in, n.out}, dtype);
    grouped_matmul_weight(alone, x.slice(4130, 4200), dy.slice(4130, 4200),
                          Sizes{{70}, n.in, n.out}.offsets());
    CHECK(test::same_bits(all.slice(3, 4), alone));
  }
}

// Gate and up lie in one tile's halves on a GPU, and in one block's sections on the CPU. The sizes end a
// tile of gate inside up, leave an expert without rows, and take several rounds of tiles.
TEST_CASE("grouped_matmul_swiglu is grouped_matmul and swiglu, to the bit") {
  const std::vector<Sizes> sizes = {{{1}, 1, 2},         {{3, 0, 5}, 7, 10}, {{129, 0, 2}, 24, 48},
                                    {{5, 130}, 72, 272}, {thin(70), 16, 32}, {{2, 3}, 0, 8},
                                    {{0, 0}, 8, 8},      {{40, 3}, 264, 512}};
  for (const DType dtype : test::kFloating) {
    for (const Sizes& n : sizes) {
      CAPTURE(name_of(dtype), n.counts, n.in, n.out);
      test::for_every_schedule([&] {
        const Tensor x = normal_tensor({n.rows(), n.in}, dtype, "x"), offsets = n.offsets();
        const Tensor weight = normal_tensor({n.experts(), n.in, n.out}, dtype, "weight");
        for (const Transpose stored : kBoth) {
          const Tensor w = stored == Transpose::yes ? swapped(weight) : weight;
          const auto [y, gate_up] = swiglu_product(x, w, offsets, stored);
          const Tensor expected = product(x, w, offsets, stored);
          CHECK(test::same_bits(gate_up, expected));
          CHECK(test::same_bits(y, swiglu_of(expected)));
        }
      });
    }
  }
}

TEST_CASE("grouped_matmul_swiglu of unaligned operands, and of NaNs next to other experts") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const Tensor offsets = Sizes{{70, 5, 3}, 40, 48}.offsets();
    const Tensor x = normal_tensor({78, 40}, dtype, "x"),
                 w = normal_tensor({3, 40, 48}, dtype, "w");
    const Tensor expected = swiglu_of(product(x, w, offsets, Transpose::no));
    const Tensor y = test::unaligned(test::poisoned({78, 24}, dtype));
    grouped_matmul_swiglu(y, test::poisoned({78, 48}, dtype), x, w, offsets);
    CHECK(test::same_bits(y, expected));
    x.slice(70, 75).copy_from(test::poisoned({5, 40}, dtype));
    const Tensor beside = swiglu_product(x, w, offsets, Transpose::no).first;
    CHECK(test::same_bits(beside.slice(0, 70), expected.slice(0, 70)));
    CHECK(test::same_bits(beside.slice(75, 78), expected.slice(75, 78)));
    CHECK(std::isnan(to_doubles(beside)[70 * 24]));
  }
}

TEST_CASE("grouped_matmul_swiglu by OpenBLAS, and of a sum too deep to be rounded at once",
          "[cpu]") {
  const test::Rank rank;
  const Tensor offsets = Sizes{{30, 0, 9}, 1, 1}.offsets();
  for (const MatmulLibrary library : {MatmulLibrary::openblas, MatmulLibrary::tessera}) {
    matmul_options().library = library;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x = normal_tensor({39, 4100}, dtype, "x"),
                   w = normal_tensor({3, 4100, 20}, dtype, "w");
      const auto [y, gate_up] = swiglu_product(x, w, offsets, Transpose::no);
      CHECK(test::same_bits(gate_up, product(x, w, offsets, Transpose::no)));
      CHECK(test::same_bits(y, swiglu_of(gate_up)));
    }
  }
}

// On a GPU whole vectors of depths are for the tensor cores, and other ranges for the general kernel.
TEST_CASE("grouped_matmul_part: the sums of all parts are the product, in every dtype and layout") {
  const test::Rank rank;
  const Sizes n{{70, 0, 5, 3}, 48, 40};
  const std::vector<std::vector<DepthPart>> cuts = {{{{0, 48}}},
                                                    {{{0, 8}, {24, 8}}, {{8, 16}, {32, 16}}},
                                                    {{{0, 5}, {20, 11}}, {{5, 15}}, {{31, 17}}}};
  for (const DType dtype : test::kFloating) {
    const Tensor x = normal_tensor({n.rows(), n.in}, dtype, "x"), offsets = n.offsets();
    const Tensor weight = normal_tensor({n.experts(), n.in, n.out}, dtype, "weight");
    const Reference r = reference(n, x, weight, normal_tensor({n.rows(), n.out}, dtype, "dy"));
    for (const Transpose stored : kBoth) {
      const Tensor w = stored == Transpose::yes ? swapped(weight) : weight;
      for (const std::vector<DepthPart>& parts : cuts) {
        CAPTURE(name_of(dtype), parts.size(), stored == Transpose::yes);
        std::vector<double> sum(static_cast<std::size_t>(n.rows() * n.out), 0.0);
        for (const DepthPart& part : parts) {
          const Tensor c = test::poisoned({n.rows(), n.out}, statistics_dtype(dtype));
          grouped_matmul_part(c, x, w, offsets, stored, part);
          const auto values = to_doubles(c);
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
        }
        CHECK(test::excess(test::tensor_of(sum, {n.rows(), n.out}, statistics_dtype(dtype)), r.y) <=
              1.0);
      }
    }
  }
}

TEST_CASE("grouped_matmul_part: a row's bits do not depend on the rows next to it", "[cpu]") {
  const test::Rank rank;
  const DepthPart depths = {{4, 20}, {40, 30}};
  for (const DType dtype : test::kFloating) {
    const Tensor x = normal_tensor({90, 72}, dtype, "x"),
                 w = normal_tensor({2, 72, 40}, dtype, "w");
    const Tensor all = test::poisoned({90, 40}, statistics_dtype(dtype));
    grouped_matmul_part(all, x, w, Sizes{{70, 20}, 72, 40}.offsets(), Transpose::no, depths);
    const Tensor few = test::poisoned({3, 40}, statistics_dtype(dtype));
    grouped_matmul_part(few, x.slice(50, 53), w, Sizes{{3, 0}, 72, 40}.offsets(), Transpose::no,
                        depths);
    CHECK(test::same_bits(all.slice(50, 53), few));
  }
}

TEST_CASE("grouped_matmul_part refuses ranges outside of the depths, and sums that are rounded") {
  using Catch::Contains;
  const test::Rank rank;
  const Tensor a = Tensor::zeros({3, 8}, DType::bf16), b = Tensor::zeros({1, 8, 4}, DType::bf16);
  const auto call = [&](DType dtype, const DepthPart& depths) {
    grouped_matmul_part(Tensor::zeros({3, 4}, dtype), a, b, Sizes{{3}, 8, 4}.offsets(),
                        Transpose::no, depths);
  };
  call(DType::f32, {{0, 8}});
  CHECK_THROWS_WITH(call(DType::f32, {{6, 3}}), Contains("has 3 depths from 6 on"));
  CHECK_THROWS_WITH(call(DType::f32, {}), Contains("the part has no range"));
  CHECK_THROWS_WITH(call(DType::bf16, {{0, 8}}), Contains("c"));
}

TEST_CASE("grouped_matmul by OpenBLAS, where the rank has chosen it", "[cpu]") {
  const test::Rank rank;
  matmul_options().library = MatmulLibrary::openblas;
  for (const DType dtype : test::kFloating) check_products({{129, 0, 2, 64}, 72, 136}, dtype);
  // Its bits are those of the library.
  const Tensor x = normal_tensor({50, 400}, DType::f32, "x"),
               w = normal_tensor({1, 400, 30}, DType::f32, "w");
  const Tensor expected = test::poisoned({50, 30}, DType::f32);
  matmul(expected, x, w.reshape({400, 30}));
  const Tensor offsets = Sizes{{50}, 400, 30}.offsets();
  CHECK(test::same_bits(product(x, w, offsets, Transpose::no), expected));
  matmul_options().library = MatmulLibrary::tessera;
  CHECK(!test::same_bits(product(x, w, offsets, Transpose::no), expected));
}

TEST_CASE("grouped_matmul of unaligned operands") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const Sizes n{{66, 0, 3}, 64, 72};
    const Tensor x = normal_tensor({69, 64}, dtype, "x"), offsets = n.offsets();
    const Tensor w = normal_tensor({3, 64, 72}, dtype, "w"),
                 dy = normal_tensor({69, 72}, dtype, "dy");
    const auto expected = reference(n, x, w, dy);
    const Tensor y = test::unaligned(test::poisoned({69, 72}, dtype));
    grouped_matmul(y, test::unaligned(x), test::unaligned(w), offsets);
    CHECK(test::excess(y, expected.y) <= 1.0);
    const Tensor dw = test::unaligned(test::poisoned(w.shape(), dtype));
    grouped_matmul_weight(dw, x, test::unaligned(dy), offsets);
    CHECK(test::excess(dw, expected.dweight) <= 1.0);
  }
}

TEST_CASE("grouped_matmul does not touch rows behind the last expert's") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const Tensor a = normal_tensor({5, 8}, dtype, "a"), b = normal_tensor({2, 8, 8}, dtype, "b");
    const Tensor offsets = Tensor::from(std::vector<std::int32_t>{0, 1, 3}, {3});
    const Tensor c = test::poisoned({5, 8}, dtype);
    grouped_matmul(c, a, b, offsets);
    const auto values = to_doubles(c);
    for (int i = 0; i < 40; ++i) CHECK(std::isnan(values[i]) == (i >= 24));
  }
}

// A tile of depths or of rows may run over into the next expert's.
TEST_CASE(
    "grouped_matmul: an expert's NaNs stay in its own results, and its neighbours keep their "
    "bits") {
  const test::Rank rank;
  const std::int64_t in = 40, out = 48;
  for (const DType dtype : test::kFloating) {
    const Sizes n{{70, 5, 3}, in, out};
    const Tensor x = normal_tensor({78, in}, dtype, "x"),
                 dy = normal_tensor({78, out}, dtype, "dy");
    const Tensor w = normal_tensor({3, in, out}, dtype, "w");
    const auto results = [&] {
      const Tensor dw = test::poisoned(w.shape(), dtype);
      grouped_matmul_weight(dw, x, dy, n.offsets());
      return std::pair(product(x, w, n.offsets(), Transpose::no), dw);
    };
    const auto [y, dw] = results();
    x.slice(70, 75).copy_from(test::poisoned({5, in}, dtype));
    dy.slice(70, 75).copy_from(test::poisoned({5, out}, dtype));
    const auto [y_beside, dw_beside] = results();
    for (const auto& [first, end] : {std::pair{0, 70}, std::pair{75, 78}}) {
      CHECK(test::same_bits(y.slice(first, end), y_beside.slice(first, end)));
    }
    for (const int e : {0, 2}) {
      CHECK(test::same_bits(dw.slice(e, e + 1), dw_beside.slice(e, e + 1)));
    }
    CHECK(std::isnan(to_doubles(y_beside)[70 * out]));
    CHECK(std::isnan(to_doubles(dw_beside)[in * out]));
  }
}

TEST_CASE("grouped_matmul: groups of rows from several ranks take the experts' matrices in turn") {
  const test::Rank rank;
  const std::int64_t in = 24, out = 40;
  for (const DType dtype : test::kFloating) {
    const Tensor x = normal_tensor({150, in}, dtype, "x");
    const Tensor w = normal_tensor({3, in, out}, dtype, "w");
    const Sizes groups{{10, 0, 20, 70, 5, 0, 0, 0, 45}, in, out};
    const Tensor y = product(x, w, groups.offsets(), Transpose::no);
    const Sizes sources[] = {{{10, 0, 20}, in, out}, {{70, 5, 0}, in, out}, {{0, 0, 45}, in, out}};
    std::int64_t row = 0;
    for (const Sizes& source : sources) {
      const std::int64_t end = row + source.rows();
      const Tensor part = product(x.slice(row, end), w, source.offsets(), Transpose::no);
      CHECK(test::same_bits(part, y.slice(row, end)));
      row = end;
    }
  }
}

TEST_CASE("grouped_matmul has the same bits for any number of threads", "[cpu]") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    test::require_equal_under_every_schedule([&] {
      const Sizes n{{700, 0, 33, 1, 250}, 96, 530};
      const Tensor x = normal_tensor({n.rows(), n.in}, dtype, "x");
      const Tensor w = normal_tensor({5, n.in, n.out}, dtype, "w");
      const Tensor dw = test::poisoned(w.shape(), dtype);
      grouped_matmul_weight(dw, x, normal_tensor({n.rows(), n.out}, dtype, "dy"), n.offsets());
      return std::pair(to_doubles(product(x, w, n.offsets(), Transpose::no)), to_doubles(dw));
    });
  }
}

TEST_CASE("grouped_matmul refuses arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f32); };
  const Tensor a = zeros({5, 4}), b = zeros({2, 4, 6}), c = zeros({5, 6});
  const Tensor offsets = Tensor::from(std::vector<std::int32_t>{0, 2, 5}, {3});
  REQUIRE_THROWS_WITH(grouped_matmul(c, zeros({5, 3}), b, offsets),
                      Contains("a is f32 [5, 3] and b is f32 [2, 4, 6]; a must have 4 columns"));
  REQUIRE_THROWS_WITH(grouped_matmul(c, a, b, offsets, Transpose::yes), Contains("6 columns"));
  REQUIRE_THROWS_WITH(grouped_matmul(zeros({5, 5}), a, b, offsets), Contains("c"));
  REQUIRE_THROWS_WITH(grouped_matmul(c, a, b, Tensor::zeros({2}, DType::i32)), Contains("offsets"));
  REQUIRE_THROWS_WITH(grouped_matmul(c, a, b, Tensor::zeros({3}, DType::i64)), Contains("offsets"));
  REQUIRE_THROWS_WITH(grouped_matmul(c, a, b, Tensor::zeros({4}, DType::i32)),
                      Contains("offsets has 3 groups; the 2 matrices of b must divide them"));
  REQUIRE_THROWS_WITH(grouped_matmul_swiglu(zeros({5, 2}), c, a, b, offsets),
                      Contains("c is f32 [5, 6]; its shape must be [5, 4]"));
  REQUIRE_THROWS_WITH(grouped_matmul_swiglu(c, c, a, b, offsets), Contains("c"));
  REQUIRE_THROWS_WITH(grouped_matmul_weight(b, a, zeros({4, 6}), offsets),
                      Contains("a is f32 [5, 4] and b is f32 [4, 6]; their rows must be equal"));
  REQUIRE_THROWS_WITH(grouped_matmul_weight(zeros({2, 4, 4}), a, a.clone(), zeros({3})),
                      Contains("offsets"));
  REQUIRE_THROWS_WITH(grouped_matmul_weight(zeros({2, 4, 5}), a, c, offsets), Contains("c"));
}

TEST_CASE("grouped_matmul_swiglu_backward has the values of its operations one after the other") {
  const test::Rank rank;
  const Sizes n{{3, 0, 6}, 24, 40};
  for (const DType dtype : test::kFloating) {
    CAPTURE(name_of(dtype));
    const Tensor dy = normal_tensor({9, n.out}, dtype, "dy"), offsets = n.offsets();
    const Tensor w = normal_tensor({3, n.in, n.out}, dtype, "w", 0.2),
                 gate_up = normal_tensor({9, 2 * n.in}, dtype, "gate_up");
    const Tensor weights = normal_tensor({3, 3}, dtype, "weights");
    const Tensor places =
        Tensor::from(std::vector<std::int32_t>{4, 0, 8, 2, 6, 1, 3, 7, 5}, {3, 3});
    const Tensor slots = Tensor::from(std::vector<std::int32_t>{1, 5, 3, 6, 0, 8, 4, 7, 2}, {9});
    const auto results = [&] {
      return std::vector{test::poisoned({9, n.in}, dtype), test::poisoned({3, 3}, dtype),
                         test::poisoned({9, 2 * n.in}, dtype)};
    };
    const auto found = results(), expected = results();
    grouped_matmul_swiglu_backward(found[0], found[1], found[2], dy, w, gate_up, offsets, places,
                                   slots, weights, Transpose::yes);
    grouped_matmul(expected[0], dy, w, offsets, Transpose::yes);
    weighed_swiglu_backward(expected[0], expected[1], first_half(expected[2]),
                            second_half(expected[2]), expected[0], first_half(gate_up),
                            second_half(gate_up), places, weights);
    CHECK(test::same_bits(found[0], expected[0]));
    CHECK(test::same_bits(found[2], expected[2]));
    const double bound =
        test::unit_roundoff(dtype) + 8 * test::unit_roundoff(statistics_dtype(dtype));
    CHECK(test::worst_error(to_doubles(found[1]), to_doubles(expected[1]), 10.0) <= bound);
  }
}

TEST_CASE("grouped_matmul_swiglu_backward refuses arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f32); };
  const Tensor a = zeros({6, 4}), b = zeros({2, 4, 8}), y = zeros({6, 8}), gate_up = zeros({6, 16});
  const Tensor offsets = Tensor::from(std::vector<std::int32_t>{0, 2, 6}, {3});
  const Tensor places = Tensor::zeros({3, 2}, DType::i32), slots = Tensor::zeros({6}, DType::i32),
               weights = zeros({3, 2}), dweights = zeros({3, 2});
  const auto call = [&](const Tensor& dgate_up, const Tensor& of_rows, const Tensor& sums) {
    grouped_matmul_swiglu_backward(y, sums, dgate_up, a, b, gate_up, offsets, places, of_rows,
                                   weights);
  };
  CHECK_THROWS_WITH(call(zeros({6, 8}), slots, dweights),
                    Contains("dgate_up is f32 [6, 8]; its shape must be [6, 16]"));
  CHECK_THROWS_WITH(call(gate_up, Tensor::zeros({5}, DType::i32), dweights),
                    Contains("slots is i32 [5]; its shape must be [6]"));
  CHECK_THROWS_WITH(call(gate_up, zeros({6}), dweights), Contains("slots"));
  CHECK_THROWS_WITH(call(gate_up, slots, {}), Contains("define all of them or none"));
  CHECK_THROWS_WITH(call(gate_up, slots, zeros({2, 3})), Contains("dweights"));
  CHECK_THROWS_WITH(grouped_matmul_swiglu_backward(a, dweights, gate_up, a, b, gate_up, offsets,
                                                   places, slots, weights),
                    Contains("y is f32 [6, 4]; its shape must be [6, 8]"));
}

TEST_CASE("grouped_matmul on the CPU refuses offsets that do not ascend", "[cpu]") {
  const test::Rank rank;
  const Tensor a = Tensor::zeros({5, 4}, DType::f32), b = Tensor::zeros({2, 4, 6}, DType::f32);
  const Tensor c = Tensor::zeros({5, 6}, DType::f32);
  for (const auto& wrong : {std::vector<std::int32_t>{1, 2, 5}, {0, 3, 2}, {0, 2, 6}}) {
    REQUIRE_THROWS_WITH(grouped_matmul(c, a, b, Tensor::from(wrong, {3})),
                        Catch::Contains("offsets must ascend from 0 to at most 5"));
  }
}

}  // namespace tessera
