// Sums of products in fixed parts: the bits of the definition, in every way.
#include "kernels/matmul/parts.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "kernels/matmul/op.h"
#include "kernels/matmul/options.h"
#include "kernels/tree_reduce/op.h"
#include "runtime/random.h"
#include "tests/kernels/product_reference.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using cpu::Isa;
using Parts = std::vector<DepthPart>;

constexpr Transpose kBoth[] = {Transpose::no, Transpose::yes};

struct Size {
  std::int64_t M, N, K;
};

struct Case {
  Size size;
  DType in, out;
  Transpose ta, tb;
};

std::ostream& operator<<(std::ostream& stream, const Case& x) {
  return stream << x.size.M << " x " << x.size.N << " x " << x.size.K << " " << name_of(x.in)
                << " to " << name_of(x.out) << (x.ta == Transpose::yes ? " ta" : "")
                << (x.tb == Transpose::yes ? " tb" : "");
}

Shape stored(std::int64_t rows, std::int64_t columns, Transpose transpose) {
  return transpose == Transpose::yes ? Shape{columns, rows} : Shape{rows, columns};
}

struct Operands {
  Tensor a, b, before;
};

Operands operands_of(const Case& x) {
  constexpr double kThird = 1.0 / 3.0;  // no short fraction, so that f64 rounds products too
  const Size& s = x.size;
  return {test::normal_tensor(stored(s.M, s.K, x.ta), x.in, "a", kThird),
          test::normal_tensor(stored(s.K, s.N, x.tb), x.in, "b", kThird),
          test::normal_tensor({s.M, s.N}, x.out, "c")};
}

Tensor product_of(const Case& x, const Operands& from, std::span<const DepthPart> parts,
                  Accumulate accumulate = Accumulate::no) {
  const Tensor c = accumulate == Accumulate::yes ? from.before.clone()
                                                 : test::poisoned({x.size.M, x.size.N}, x.out);
  matmul_in_parts(c, from.a, from.b, x.ta, x.tb, parts, accumulate);
  return c;
}

/// Depths [first, first + count) of a factor, in memory of their own.
Tensor depths_of(const Tensor& factor, bool depth_is_row, const DepthRange& range) {
  if (depth_is_row) return factor.slice(range.first, range.first + range.count).clone();
  const std::vector<double> values = test::to_doubles(factor);
  std::vector<double> taken;
  for (std::int64_t i = 0; i < factor.size(0); ++i) {
    const auto row = values.begin() + i * factor.size(1) + range.first;
    taken.insert(taken.end(), row, row + range.count);
  }
  return test::tensor_of(taken, {factor.size(0), range.count}, factor.dtype());
}

/// A part by the definition: matmul of copies of its ranges.
Tensor part_by_matmul(const Case& x, const Operands& from, const DepthPart& part) {
  const Tensor sum = Tensor::empty({x.size.M, x.size.N}, statistics_dtype(x.in));
  for (const DepthRange& range : part) {
    matmul(sum, depths_of(from.a, x.ta == Transpose::yes, range),
           depths_of(from.b, x.tb == Transpose::no, range), x.ta, x.tb,
           &range == part.data() ? Accumulate::no : Accumulate::yes);
  }
  return sum;
}

/// The sum of tensors in the tree; f64 by hand, as tree_reduce has none.
Tensor tree_of(std::span<const Tensor> sums) {
  const Tensor result = Tensor::empty(sums[0].shape(), sums[0].dtype());
  if (result.dtype() != DType::f64) {
    tree_reduce(result, sums, Reduction::sum);
    return result;
  }
  if (sums.size() == 1) return sums[0];
  const auto left = test::to_doubles(tree_of(sums.first(sums.size() / 2)));
  auto values = test::to_doubles(tree_of(sums.last(sums.size() / 2)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += left[i];
  return Tensor::from(values, result.shape());
}

/// `sum` as an element of c stores it, alone or added to what c has: one rounding.
Tensor stored_sum(const Case& x, const Operands& from, const Tensor& sum, Accumulate accumulate) {
  std::vector<double> values;
  const auto sums = test::to_doubles(sum), before = test::to_doubles(from.before);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double added = accumulate == Accumulate::yes ? before[i] : 0.0;
    values.push_back(x.in == DType::f64 ? sums[i] + added
                                        : static_cast<float>(sums[i]) + static_cast<float>(added));
  }
  return test::tensor_of(values, sum.shape(), x.out);
}

/// Parts of several ranges of unequal size, in no order, and a gap.
Parts scattered_parts(std::int64_t K) {
  const std::int64_t eighth = K / 8;
  return {{{6 * eighth, eighth}, {0, eighth - 1}},
          {{3 * eighth, 2}, {eighth, eighth}, {3 * eighth + 2, 1}},
          {{7 * eighth, K - 7 * eighth}},
          {{4 * eighth + 1, 2 * eighth - 1}}};
}

const std::vector<std::pair<DType, DType>> kDTypes = [] {
  std::vector<std::pair<DType, DType>> dtypes = {
      {DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16},
      {DType::f16, DType::f16}, {DType::f32, DType::bf16}, {DType::f64, DType::f64}};
  if (test::kOnGpu) dtypes.pop_back();
  return dtypes;
}();

/// Few rows; rows that share panels; several blocks and panels of either factor; parts of several
/// pieces; depths for more than one round; parts that are deeper than a round. On a GPU an algorithm
/// depends on how a range is aligned, so there an eighth of K is a multiple of 16 bytes.
const std::vector<Size> kSizes =
    test::kOnGpu ? std::vector<Size>{{3, 5, 64}, {20, 97, 256}, {100, 50, 832}}
                 : std::vector<Size>{{3, 5, 24},     {20, 97, 128},   {100, 50, 200},
                                     {41, 33, 808},  {130, 50, 648},  {240, 390, 48},
                                     {98, 1545, 40}, {100, 49, 4480}, {7, 9, 12000}};

/// All sizes and dtypes. The transpositions take turns.
template <typename F>
void for_each_case(const F& f) {
  std::size_t turn = 0;
  for (const Size& size : kSizes) {
    for (const auto& [in, out] : kDTypes) {
      f(Case{size, in, out, kBoth[turn / 2 % 2], kBoth[turn % 2]});
      ++turn;
    }
    ++turn;
  }
}

/// Equal parts, 16 if each has whole vectors, and on the CPU also scattered ones.
std::vector<Parts> parts_of(std::int64_t K) {
  std::vector<Parts> lists = {equal_depth_parts(K, K % 128 == 0 ? 16 : 8)};
  if (!test::kOnGpu) lists.push_back(scattered_parts(K));
  return lists;
}

/// The levels of this CPU; of a large product the best one alone.
std::vector<Isa> isas_for(const Size& s) {
  if (test::kOnGpu || s.M * s.N * s.K > 5'000'000) return {cpu::best_isa()};
  std::vector<Isa> isas = cpu::available_isas();
#if !defined(__FMA__) && !defined(__aarch64__)
  std::erase(isas, Isa::portable);  // it calls a function for every fused multiply-add
#endif
  return isas;
}

/// The bits of c, of the first part alone and of all pairs, on all levels.
void check_bits(const Case& x, const Operands& from, std::span<const DepthPart> parts) {
  for (const Isa isa : isas_for(x.size)) {
    CAPTURE(x, enum_name(isa), parts.size());
    matmul_options().isa = isa;
    std::vector<Tensor> sums, pairs;
    for (const DepthPart& part : parts) sums.push_back(part_by_matmul(x, from, part));
    const Tensor sum = tree_of(sums);
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      CHECK(test::same_bits(product_of(x, from, parts, accumulate),
                            stored_sum(x, from, sum, accumulate)));
    }
    Case wide = x;
    wide.out = statistics_dtype(x.in);
    CHECK(test::same_bits(product_of(wide, from, parts.first(1)), sums[0]));
    for (std::size_t i = 0; i + 1 < parts.size(); i += 2) {
      pairs.push_back(product_of(wide, from, parts.subspan(i, 2)));
    }
    if (!pairs.empty()) CHECK(test::same_bits(tree_of(pairs), sum));
  }
}

}  // namespace

TEST_CASE("a product in parts has the bits of its definition, in every tree of trees") {
  const test::Rank rank;
  for_each_case([](const Case& x) {
    const Operands from = operands_of(x);
    for (const Parts& parts : parts_of(x.size.K)) check_bits(x, from, parts);
  });
}

TEST_CASE("products of random shapes in random parts have the bits of their definition", "[cpu]") {
  const test::Rank rank(3);
  const RandomStream random(7, "products in parts");
  std::uint64_t drawn = 0;
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random.below(drawn++, static_cast<std::uint64_t>(bound)));
  };
  for (int i = 0; i < 24; ++i) {
    const auto& [in, out] = kDTypes[static_cast<std::size_t>(below(std::ssize(kDTypes)))];
    const Case x = {{1 + below(150), 1 + below(120), 64 + below(700)},
                    in,
                    out,
                    kBoth[below(2)],
                    kBoth[below(2)]};
    // Neighbouring ranges, with gaps, in any order.
    std::vector<DepthRange> ranges;
    for (std::int64_t k = 0; k < x.size.K - 40;) {
      const DepthRange range = {k + below(8), 1 + below(30)};
      ranges.push_back(range);
      k = range.first + range.count;
    }
    Parts parts(std::size_t{1} << below(3));
    for (std::size_t p = 0; !ranges.empty(); p = (p + 1) % parts.size()) {
      const auto taken = ranges.begin() + below(std::ssize(ranges));
      parts[p].push_back(*taken);
      ranges.erase(taken);
    }
    std::erase_if(parts, [](const DepthPart& part) { return part.empty(); });
    check_bits(x, operands_of(x), std::span(parts).first(std::bit_floor(parts.size())));
  }
}

TEST_CASE("a product in parts is right") {
  const test::Rank rank;
  for_each_case([](const Case& x) {
    CAPTURE(x);
    const Operands from = operands_of(x);
    auto expected = test::product_reference(from.a, from.b, x.ta, x.tb);
    expected.add(from.before);
    // All depths, scattered over two parts.
    const std::int64_t third = x.size.K / 3;
    const Parts scattered = {{{2 * third, x.size.K - 2 * third}}, {{third, third}, {0, third}}};
    for (const Parts& parts : {equal_depth_parts(x.size.K, 4), scattered}) {
      CHECK(test::excess(product_of(x, from, parts, Accumulate::yes), expected) <= 1.0);
    }
  });
}

TEST_CASE("depths that belong to no part are not read") {
  const test::Rank rank;
  const Parts parts = {{{0, 20}, {32, 8}}, {{48, 7}}};
  const auto with_nan = [](const Tensor& factor, bool depth_is_row) {
    std::vector<double> values = test::to_doubles(factor);
    const std::int64_t columns = factor.size(1);
    for (std::int64_t i = 0; i < factor.numel(); ++i) {
      const std::int64_t k = depth_is_row ? i / columns : i % columns;
      const bool used = k < 20 || (k >= 32 && k < 40) || (k >= 48 && k < 55);
      if (!used) values[static_cast<std::size_t>(i)] = std::nan("");
    }
    return test::tensor_of(values, factor.shape(), factor.dtype());
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t rows : {3, 130}) {
      for (const Transpose ta : kBoth) {
        for (const Transpose tb : kBoth) {
          const Case x = {{rows, 33, 64}, dtype, DType::f32, ta, tb};
          const Operands from = operands_of(x);
          const Operands poisoned = {with_nan(from.a, ta == Transpose::yes),
                                     with_nan(from.b, tb == Transpose::no), from.before};
          for (const Isa isa : isas_for(x.size)) {
            CAPTURE(x, enum_name(isa));
            matmul_options().isa = isa;
            CHECK(test::same_bits(product_of(x, poisoned, parts), product_of(x, from, parts)));
          }
        }
      }
    }
  }
}

TEST_CASE("a product in parts has the same bits for any number of threads", "[cpu]") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Size& size : {Size{240, 390, 96}, Size{30, 200, 648}}) {
      const Case x = {size, dtype, dtype, Transpose::no, Transpose::yes};
      std::vector<std::vector<double>> results;
      for (const int threads : {1, 2, 3}) {
        const test::Rank rank(threads);
        results.push_back(
            test::to_doubles(product_of(x, operands_of(x), equal_depth_parts(size.K, 8))));
      }
      for (const auto& result : results) CHECK(result == results[0]);
    }
  }
}

// Tensor ranks multiply rows in pieces, while others travel.
TEST_CASE("a row of a product in parts has the same bits whatever rows are computed with it",
          "[cpu]") {
  const test::Rank rank(2);
  for (const auto& [in, out] : kDTypes) {
    for (const Size& size : kSizes) {
      for (const Transpose tb : kBoth) {
        const Case x = {size, in, out, Transpose::no, tb};
        const Operands from = operands_of(x);
        const Parts parts = equal_depth_parts(size.K, 8);
        for (const Isa isa : isas_for(size)) {
          matmul_options().isa = isa;
          const Tensor whole = product_of(x, from, parts);
          const std::int64_t third = size.M / 3;
          for (const auto& [first, last] : {std::pair<std::int64_t, std::int64_t>{0, third},
                                            {third, size.M},
                                            {size.M - 1, size.M}}) {
            CAPTURE(x, enum_name(isa), first, last);
            Case piece = x;
            piece.size.M = last - first;
            const Operands rows = {from.a.slice(first, last), from.b,
                                   from.before.slice(first, last)};
            CHECK(test::same_bits(product_of(piece, rows, parts), whole.slice(first, last)));
          }
        }
      }
    }
  }
}

TEST_CASE("a product in parts has the same bits in f32 and f64 on every instruction set", "[cpu]") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Case x = {{130, 50, 648}, dtype, dtype, Transpose::no, Transpose::no};
    const Operands from = operands_of(x);
    const Parts parts = scattered_parts(x.size.K);
    const Tensor expected = product_of(x, from, parts);
    for (const Isa isa : isas_for(x.size)) {
      matmul_options().isa = isa;
      CHECK(test::same_bits(product_of(x, from, parts), expected));
    }
  }
}

TEST_CASE("a dry run takes the workspace of a product in parts, the same at every level", "[cpu]") {
  const auto peak = [](bool dry, const Case& x, Isa isa) {
    RankContext context({.device = test::device(), .threads = 3, .seed = 1, .dry = dry});
    const ContextGuard guard(context);
    matmul_options().isa = isa;
    const Size& s = x.size;
    const Tensor c = Tensor::empty({s.M, s.N}, x.out);
    matmul_in_parts(c, Tensor::empty(stored(s.M, s.K, x.ta), x.in),
                    Tensor::empty(stored(s.K, s.N, x.tb), x.in), x.ta, x.tb, scattered_parts(s.K));
    CHECK(context.allocator().account()[Category::workspace].current == 0);
    return context.allocator().account()[Category::workspace].peak;
  };
  for_each_case([&](const Case& x) {
    CAPTURE(x);
    const std::int64_t bytes = peak(false, x, cpu::best_isa());
    for (const Isa isa : cpu::available_isas()) CHECK(peak(true, x, isa) == bytes);
  });
}

TEST_CASE("matmul_in_parts says what is wrong with parts") {
  using Catch::Contains;
  const test::Rank rank;
  const Case x = {{3, 5, 24}, DType::f32, DType::f32, Transpose::no, Transpose::no};
  const Operands from = operands_of(x);
  const auto message = [&](const Parts& parts) {
    try {
      product_of(x, from, parts);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK_THAT(message({}), Contains("0 parts; their number must be a power of two"));
  CHECK_THAT(message({{{0, 1}}, {{1, 1}}, {{2, 1}}}), Contains("3 parts"));
  CHECK_THAT(message({{{0, 1}}, {}}), Contains("part 1 has no range"));
  CHECK_THAT(message({{{20, 5}}}), Contains("part 0 has 5 depths from 20 on") && Contains("24"));
  CHECK_THAT(message({{{3, 0}}}), Contains("0 depths"));
  CHECK_THAT(message({{{-1, 2}}}), Contains("from -1 on"));
  CHECK_THAT(message({{{4, 5}}, {{0, 5}}}), Contains("depth 4 belongs to two ranges"));
  CHECK_THROWS_WITH(equal_depth_parts(10, 4), Contains("10 depths") && Contains("4 equal parts"));
  const Tensor batch = Tensor::zeros({2, 3, 3}, DType::f32);
  CHECK_THROWS_WITH(matmul_in_parts(batch.clone(), batch.clone(), batch, Transpose::no,
                                    Transpose::no, equal_depth_parts(3, 1)),
                    Contains("c is") && Contains("2"));
}

TEST_CASE("a product in parts without elements does nothing") {
  const test::Rank rank;
  matmul_in_parts(Tensor::empty({0, 5}, DType::f32), Tensor::empty({0, 4}, DType::f32),
                  Tensor::zeros({4, 5}, DType::f32), Transpose::no, Transpose::no,
                  equal_depth_parts(4, 2));
}

}  // namespace tessera
