#include "kernels/embedding/op.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::relative_error;
using test::to_doubles;

struct Sizes {
  std::int64_t rows, columns, tokens;
};
// One of each, columns beyond a block of 256, few rows with many tokens each, no tokens.
const std::vector<Sizes> kSizes = {
    {1, 1, 1}, {50, 300, 37}, {3, 17, 200}, {1000, 64, 90}, {4, 5, 0}};

Tensor filled_with_nan(const Shape& shape, DType dtype) {
  return test::normal_tensor(shape, dtype, "poison", std::numeric_limits<double>::quiet_NaN());
}

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
const std::vector<Types> kTypes = {
    {DType::f64, DType::f64, 1e-15},    {DType::f32, DType::f32, 1e-6},
    {DType::bf16, DType::bf16, 0x1p-8}, {DType::f16, DType::f16, 0x1p-11},
    {DType::bf16, DType::f32, 1e-6},    {DType::f16, DType::f32, 1e-6},
};

}  // namespace

TEST_CASE("embedding copies the rows that the ids name") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const Sizes& n : kSizes) {
      CAPTURE(name_of(dtype), n.rows, n.columns, n.tokens);
      const Tensor table = test::normal_tensor({n.rows, n.columns}, dtype, "table");
      const Tensor ids = test::index_tensor({n.tokens}, n.rows, "ids");
      const Tensor y = filled_with_nan({n.tokens, n.columns}, dtype);
      embedding_forward(y, table, ids);
      for (std::int64_t t = 0; t < n.tokens; ++t) {
        const std::int64_t id = ids.data<std::int32_t>()[t];
        REQUIRE(test::same_bits(y.slice(t, t + 1), table.slice(id, id + 1)));
      }
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
      const Tensor overwritten = filled_with_nan({n.rows, n.columns}, types.dtable);
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

TEST_CASE("embedding's gradient is added in order of position") {
  const test::Rank rank;
  // In this order the sum is exactly 1; in another the 1 would be lost beside 1e8.
  const Tensor dy = Tensor::from(std::vector<float>{1e8f, -1e8f, 1.0f}, {3, 1});
  const Tensor ids = Tensor::from(std::vector<std::int32_t>{1, 1, 1}, {3});
  const Tensor dtable = filled_with_nan({2, 1}, DType::f32);
  embedding_backward(dtable, dy, ids, Accumulate::no);
  REQUIRE(dtable.to_vector<float>() == std::vector<float>{0.0f, 1.0f});
}

TEST_CASE("embedding's gradient has the same bits for any number of threads") {
  const auto compute = [](int threads) {
    const test::Rank rank(threads);
    const Tensor dy = test::normal_tensor({300, 40}, DType::f32, "dy");
    const Tensor dtable = Tensor::empty({20, 40}, DType::f32);
    embedding_backward(dtable, dy, test::index_tensor({300}, 20, "ids"), Accumulate::no);
    return dtable.to_vector<float>();
  };
  const auto one = compute(1);
  REQUIRE(compute(2) == one);
  REQUIRE(compute(3) == one);
}

TEST_CASE("embedding names the position of an id outside the table and writes nothing") {
  using Catch::Contains;
  const test::Rank rank;
  const Tensor table = Tensor::zeros({4, 2}, DType::f32);
  const Tensor y = Tensor::zeros({3, 2}, DType::f32);
  for (const int wrong : {4, -1}) {
    const Tensor ids = Tensor::from(std::vector<std::int32_t>{0, 3, wrong}, {3});
    const std::string wrong_id = "ids[2] is " + std::to_string(wrong);
    REQUIRE_THROWS_WITH(embedding_forward(y, table, ids), Contains(wrong_id) && Contains("[0, 4)"));
    const Tensor dtable = Tensor::from(std::vector<float>(8, 5.0f), {4, 2});
    REQUIRE_THROWS_WITH(embedding_backward(dtable, y, ids, Accumulate::no),
                        Contains(wrong_id) && Contains("[0, 4)"));
    REQUIRE(dtable.to_vector<float>() == std::vector<float>(8, 5.0f));
  }
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
}

}  // namespace tessera
