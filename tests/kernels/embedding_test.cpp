#include "kernels/embedding/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::relative_error;
using test::to_doubles;

struct Sizes {
  std::int64_t rows, columns, tokens;
};
// One of each; more columns than a block's 256; rows with several runs; more rows than values of a
// sort's digit; rows of several blocks; no tokens; no columns.
const std::vector<Sizes> kSizes = {{1, 1, 1},        {50, 300, 37},  {3, 17, 500}, {1000, 64, 90},
                                   {70'000, 8, 300}, {5, 2056, 140}, {4, 5, 0},    {4, 0, 3}};

/// `dtable` plus every row of dy at its id, in double.
std::vector<double> expected_gradient(std::vector<double> dtable, const Tensor& dy,
                                      const Tensor& ids) {
  const std::vector<double> values = to_doubles(dy);
  const std::vector<std::int32_t> id = ids.to_vector<std::int32_t>();
  const std::int64_t columns = dy.size(1);
  for (std::int64_t n = 0; n < ids.numel(); ++n) {
    for (std::int64_t c = 0; c < columns; ++c) {
      dtable[static_cast<std::size_t>(id[n] * columns + c)] += values[n * columns + c];
    }
  }
  return dtable;
}

struct Types {
  DType dy, dtable;
  double bound;
};
const std::vector<Types> kTypes = [] {
  std::vector<Types> types = {
      {DType::f32, DType::f32, 1e-6},    {DType::bf16, DType::bf16, 0x1p-8},
      {DType::f16, DType::f16, 0x1p-11}, {DType::bf16, DType::f32, 1e-6},
      {DType::f16, DType::f32, 1e-6},
  };
  if (!test::kOnGpu) types.push_back({DType::f64, DType::f64, 1e-15});
  return types;
}();

/// The gradient in f32 in the order of op.h, for comparison bit by bit.
std::vector<float> ordered_gradient(std::vector<float> dtable, const Tensor& dy,
                                    const Tensor& ids) {
  const auto values = to_doubles(dy);
  const auto id = ids.to_vector<std::int32_t>();
  const auto columns = static_cast<std::size_t>(dy.size(1));
  std::map<std::int32_t, std::vector<std::size_t>> occurrences;
  for (std::size_t n = 0; n < id.size(); ++n) occurrences[id[n]].push_back(n);
  for (const auto& [row, positions] : occurrences) {
    const std::size_t runs = std::max<std::size_t>(1, positions.size() / 64);
    for (std::size_t c = 0; c < columns; ++c) {
      float& total = dtable[static_cast<std::size_t>(row) * columns + c];
      for (std::size_t run = 0; run < runs; ++run) {
        const std::size_t end = run + 1 == runs ? positions.size() : (run + 1) * 64;
        float sum = run == 0 ? total : 0.0f;
        for (std::size_t i = run * 64; i < end; ++i) {
          sum += static_cast<float>(values[positions[i] * columns + c]);
        }
        total = run == 0 ? sum : total + sum;
      }
    }
  }
  return dtable;
}

/// Ids in [0, rows). The ids in `hot` have the given number of occurrences, mixed with the others.
Tensor ids_with(std::int64_t tokens, std::int64_t rows,
                const std::vector<std::pair<std::int32_t, std::int64_t>>& hot) {
  auto id = test::index_tensor({tokens}, rows, "ids").to_vector<std::int32_t>();
  const RandomPermutation place({7, "places"}, static_cast<std::uint64_t>(tokens));
  std::uint64_t next = 0;
  for (const auto& [row, count] : hot) {
    for (auto& other : id) other = other == row ? 0 : other;
  }
  for (const auto& [row, count] : hot) {
    for (std::int64_t i = 0; i < count; ++i) id[place(next++)] = row;
  }
  return Tensor::from(id, {tokens});
}

/// Rows [first, first + rows) of a table. The last part may end behind the table, with padding.
struct PartSizes {
  std::int64_t first, rows;
};

/// Rows of `table` for a part, with rows of `padding` where the part ends behind the table.
Tensor rows_of(const Tensor& table, const PartSizes& part, double padding) {
  const Shape shape = {part.rows, table.size(1)};
  const std::vector<double> fill(static_cast<std::size_t>(shape.numel()), padding);
  const Tensor rows = test::tensor_of(fill, shape, table.dtype());
  const std::int64_t last = std::min(part.first + part.rows, table.size(0));
  const Tensor held = table.slice(part.first, last);
  rows.slice(0, held.size(0)).copy_from(held);
  return rows;
}

// Equal parts; parts of one and of no row; a part with padding, as the last rank's of a vocabulary.
const std::vector<std::vector<PartSizes>> kCuts = {
    {{0, 10}, {10, 10}}, {{0, 1}, {1, 17}, {18, 0}, {18, 2}}, {{0, 6}, {6, 6}, {12, 6}, {18, 6}}};
constexpr std::int64_t kRowsOfCuts = 20;

}  // namespace

TEST_CASE("embedding copies the rows that the ids name") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    for (const Sizes& n : kSizes) {
      CAPTURE(name_of(dtype), n.rows, n.columns, n.tokens);
      const Tensor table = test::normal_tensor({n.rows, n.columns}, dtype, "table");
      const Tensor ids = test::index_tensor({n.tokens}, n.rows, "ids");
      const auto rows = to_doubles(table);
      std::vector<double> expected;
      for (const std::int32_t id : ids.to_vector<std::int32_t>()) {
        const auto row = rows.begin() + id * n.columns;
        expected.insert(expected.end(), row, row + n.columns);
      }
      const Tensor y = test::poisoned({n.tokens, n.columns}, dtype);
      embedding_forward(y, table, ids);
      REQUIRE(to_doubles(y) == expected);
      const Tensor z = test::unaligned(test::poisoned({n.tokens, n.columns}, dtype));
      embedding_forward(z, table, ids);
      REQUIRE(test::same_bits(z, y));
      embedding_forward(y, test::unaligned(table), test::unaligned(ids));
      REQUIRE(test::same_bits(z, y));
    }
  }
}

TEST_CASE("embedding's gradient leaves the row of padding alone, and all others as they are") {
  const test::Rank rank;
  const std::int32_t padding = 2;
  // Padding never, once, in one run, and in several runs.
  for (const std::int64_t count : {0, 1, 63, 300}) {
    for (const Types& types : kTypes) {
      const Accumulate accumulate = GENERATE(Accumulate::no, Accumulate::yes);
      CAPTURE(name_of(types.dy), name_of(types.dtable), count);
      const Tensor dy = test::normal_tensor({400, 24}, types.dy, "dy");
      const Tensor ids = ids_with(400, 5, {{padding, count}});
      const Tensor before = test::normal_tensor({5, 24}, types.dtable, "dtable");
      const Tensor plain = before.clone(), padded = before.clone();
      embedding_backward(plain, dy, ids, accumulate);
      embedding_backward(padded, dy, ids, accumulate, padding);
      const Tensor row = padded.slice(padding, padding + 1);
      if (accumulate == Accumulate::yes) {
        REQUIRE(test::same_bits(row, before.slice(padding, padding + 1)));
      } else {
        REQUIRE(to_doubles(row) == std::vector<double>(24, 0.0));
      }
      REQUIRE(test::same_bits(padded.slice(0, padding), plain.slice(0, padding)));
      REQUIRE(test::same_bits(padded.slice(padding + 1, 5), plain.slice(padding + 1, 5)));
    }
  }
}

TEST_CASE("embedding's gradient sums the rows of every id, overwriting or adding") {
  const test::Rank rank;
  for (const Types& types : kTypes) {
    for (const Sizes& n : kSizes) {
      CAPTURE(name_of(types.dy), name_of(types.dtable), n.rows, n.columns, n.tokens);
      const Tensor dy = test::normal_tensor({n.tokens, n.columns}, types.dy, "dy");
      const Tensor ids = test::index_tensor({n.tokens}, n.rows, "ids");
      const Tensor overwritten = test::poisoned({n.rows, n.columns}, types.dtable);
      embedding_backward(overwritten, dy, ids, Accumulate::no);
      const std::vector<double> zeros(static_cast<std::size_t>(n.rows * n.columns), 0.0);
      CHECK(relative_error(to_doubles(overwritten), expected_gradient(zeros, dy, ids)) <=
            types.bound);

      const Tensor added = test::normal_tensor({n.rows, n.columns}, types.dtable, "dtable");
      const std::vector<double> expected = expected_gradient(to_doubles(added), dy, ids);
      embedding_backward(added, dy, ids, Accumulate::yes);
      CHECK(relative_error(to_doubles(added), expected) <= types.bound);
    }
  }
}

TEST_CASE("embedding's gradient is summed in the runs that op.h promises, under every schedule") {
  // Occurrences around one run, two and more; neighbours in the sorted order with few and many; one
  // id that is half of all.
  const std::vector<std::vector<std::pair<std::int32_t, std::int64_t>>> cases = {
      {{5, 63}, {6, 64}, {7, 65}},
      {{5, 127}, {6, 128}, {7, 129}, {9, 191}},
      {{3, 130}, {4, 1}, {5, 140}, {6, 192}, {7, 193}},
      {{0, 300}, {19, 330}},
      {{11, 2000}},
  };
  for (const auto& hot : cases) {
    test::for_every_schedule([&] {
      std::int64_t tokens = 150;
      for (const auto& [row, count] : hot) tokens += count;
      const Tensor ids = ids_with(tokens, 20, hot);
      for (const std::int64_t columns : {4, 3}) {
        const Tensor dy = test::normal_tensor({tokens, columns}, DType::f32, "dy");
        const Tensor before = test::normal_tensor({20, columns}, DType::f32, "before");
        const Tensor added = before.clone(), fresh = test::poisoned({20, columns}, DType::f32);
        embedding_backward(added, dy, ids, Accumulate::yes);
        embedding_backward(fresh, dy, ids, Accumulate::no);
        CHECK(added.to_vector<float>() == ordered_gradient(before.to_vector<float>(), dy, ids));
        CHECK(fresh.to_vector<float>() ==
              ordered_gradient(std::vector<float>(20 * columns), dy, ids));
        const Tensor elsewhere = test::unaligned(before);
        embedding_backward(elsewhere, test::unaligned(dy), ids, Accumulate::yes);
        CHECK(test::same_bits(elsewhere, added));
      }
    });
  }
}

TEST_CASE("embedding's gradient of many tokens: every tile and every digit of the sort") {
  const test::Rank rank;
  constexpr std::int64_t kTokens = 9'001, kRows = 70'000;
  const Tensor dy = test::normal_tensor({kTokens, 1}, DType::f32, "dy");
  const Tensor ids = ids_with(kTokens, kRows, {{69'999, 500}, {256, 40}, {65'536, 3000}});
  const Tensor dtable = test::poisoned({kRows, 1}, DType::f32);
  embedding_backward(dtable, dy, ids, Accumulate::no);
  REQUIRE(dtable.to_vector<float>() == ordered_gradient(std::vector<float>(kRows), dy, ids));
}

TEST_CASE("embedding names the position of an id outside the table") {
  using Catch::Contains;
  const test::Rank rank;
  const Tensor table = Tensor::zeros({4, 2}, DType::f32);
  const Tensor y = Tensor::zeros({3, 2}, DType::f32);
  for (const int wrong : {4, -1, 256, std::numeric_limits<std::int32_t>::max()}) {
    const Tensor ids = Tensor::from(std::vector<std::int32_t>{3, wrong, wrong}, {3});
    const auto says = [&] {
      return test::kOnGpu
                 ? Contains("embedding: the id at position 1 is not a row of the table")
                 : Contains("ids[1] is " + std::to_string(wrong) + "; the table has rows [0, 4)");
    };
    const auto and_wait = [](const auto& call) {
      call();
      current_stream().synchronize();
    };
    REQUIRE_THROWS_WITH(and_wait([&] { embedding_forward(y, table, ids); }), says());
    const Tensor dtable = Tensor::from(std::vector<float>(8, 5.0f), {4, 2});
    const Tensor dy = Tensor::from(std::vector<float>(6, 1.0f), {3, 2});
    REQUIRE_THROWS_WITH(and_wait([&] { embedding_backward(dtable, dy, ids, Accumulate::yes); }),
                        says());
    // Row 3 has a good id: CUDA writes it, the CPU writes nothing. The other rows are as before.
    std::vector<float> expected(8, 5.0f);
    if (test::kOnGpu) expected[6] = expected[7] = 6.0f;
    REQUIRE(dtable.to_vector<float>() == expected);
  }
}

TEST_CASE("embedding: a part of a table gives its rows, and zeros for those of the others") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t columns : {24, 3}) {
      const Tensor table = test::normal_tensor({kRowsOfCuts, columns}, dtype, "table");
      const Tensor ids = test::index_tensor({90}, kRowsOfCuts, "ids");
      const Tensor whole = test::poisoned({90, columns}, dtype);
      embedding_forward(whole, table, ids);
      const auto id = ids.to_vector<std::int32_t>();
      for (const auto& cut : kCuts) {
        for (const PartSizes& part : cut) {
          CAPTURE(name_of(dtype), columns, part.first, part.rows);
          const Tensor y = test::poisoned(whole.shape(), dtype);
          embedding_forward(y, rows_of(table, part, 1.0), ids, {part.first, kRowsOfCuts});
          const Tensor expected = Tensor::zeros(whole.shape(), dtype);
          for (std::int64_t n = 0; n < 90; ++n) {
            if (id[n] < part.first || id[n] >= part.first + part.rows) continue;
            expected.slice(n, n + 1).copy_from(whole.slice(n, n + 1));
          }
          CHECK(test::same_bits(y, expected));
        }
      }
    }
  }
}

TEST_CASE("embedding: gradients of the parts of a table are those of the whole, bit by bit") {
  // An id with several runs; one with a run and a rest; the padding's, in the second part of each cut.
  const std::vector<std::pair<std::int32_t, std::int64_t>> hot = {{3, 200}, {19, 70}, {11, 130}};
  test::for_every_schedule([&] {
    for (const Types& types : kTypes) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        for (const std::optional<std::int64_t> padding : {std::optional<std::int64_t>(), {11}}) {
          const Tensor ids = ids_with(500, kRowsOfCuts, hot);
          const Tensor dy = test::normal_tensor({500, 12}, types.dy, "dy");
          const Tensor before = test::normal_tensor({kRowsOfCuts, 12}, types.dtable, "dtable");
          const Tensor whole = before.clone();
          embedding_backward(whole, dy, ids, accumulate, padding);
          for (const auto& cut : kCuts) {
            for (const PartSizes& part : cut) {
              CAPTURE(name_of(types.dy), name_of(types.dtable), part.first, part.rows);
              const Tensor own = rows_of(before, part, 1.0);
              embedding_backward(own, dy, ids, accumulate, padding, {part.first, kRowsOfCuts});
              const double behind = accumulate == Accumulate::yes ? 1.0 : 0.0;
              CHECK(test::same_bits(own, rows_of(whole, part, behind)));
            }
          }
        }
      }
    }
  });
}

TEST_CASE("embedding: a part of a table refuses ids outside the whole table, not those of others") {
  using Catch::Contains;
  const test::Rank rank;
  const TablePart part = {.first = 4, .all = 12};
  const Tensor table = Tensor::full({4, 2}, DType::f32, 5.0),
               dy = Tensor::full({3, 2}, DType::f32, 1.0);
  const Tensor y = test::poisoned({3, 2}, DType::f32);
  const auto run = [&](const Tensor& ids) {
    embedding_forward(y, table, ids, part);
    current_stream().synchronize();
  };
  const auto differentiate = [&](const Tensor& ids) {
    embedding_backward(table, dy, ids, Accumulate::yes, std::nullopt, part);
    current_stream().synchronize();
  };
  for (const int wrong : {12, -1}) {
    const Tensor ids = Tensor::from(std::vector<std::int32_t>{3, wrong, 8}, {3});
    const auto says = [&] {
      return test::kOnGpu
                 ? Contains("embedding: the id at position 1 is not a row of the table")
                 : Contains("ids[1] is " + std::to_string(wrong) + "; the table has rows [0, 12)");
    };
    REQUIRE_THROWS_WITH(run(ids), says());
    REQUIRE_THROWS_WITH(differentiate(ids), says());
  }
  // The first and the last row of all, and the rows next to the part.
  const Tensor others = Tensor::from(std::vector<std::int32_t>{0, 11, 8}, {3});
  run(others);
  differentiate(others);
  CHECK(to_doubles(y) == std::vector<double>(6, 0.0));
  CHECK(to_doubles(table) == std::vector<double>(8, 5.0));
  REQUIRE_THROWS_WITH(embedding_backward(table, dy, others, Accumulate::no, 12, part),
                      Contains("padding_id is 12; the table has rows [0, 12)"));
}

TEST_CASE("embedding rejects arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const Tensor table = Tensor::zeros({4, 2}, DType::f32), y = Tensor::zeros({3, 2}, DType::f32);
  const Tensor ids = Tensor::zeros({3}, DType::i32);
  REQUIRE_THROWS_WITH(embedding_forward(Tensor::zeros({3, 3}, DType::f32), table, ids),
                      Contains("y") && Contains("[3, 2]"));
  REQUIRE_THROWS_WITH(embedding_forward(Tensor::zeros({3, 2}, DType::bf16), table, ids),
                      Contains("dtypes"));
  REQUIRE_THROWS_WITH(embedding_forward(y, table, Tensor::zeros({3}, DType::i64)),
                      Contains("ids") && Contains("i32"));
  REQUIRE_THROWS_WITH(embedding_forward(table.slice(1, 4), table, ids), Contains("overlaps"));
  REQUIRE_THROWS_WITH(
      embedding_backward(Tensor::zeros({4, 2}, DType::bf16), y, ids, Accumulate::no),
      Contains("dtable"));
  for (const std::int64_t padding : {-1, 4}) {
    REQUIRE_THROWS_WITH(embedding_backward(table, y, ids, Accumulate::no, padding),
                        Contains("padding_id is " + std::to_string(padding)) && Contains("[0, 4)"));
  }
}

}  // namespace tessera
