// Products, sums and the head's loss that tensor-parallel ranks divide: for every number of ranks the bits of
// one rank, and the values of formulas in float64. Ranks are threads.
#include "autograd/operations/divided.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "autograd/activations.h"
#include "autograd/operations/divided_loss.h"
#include "kernels/bias/op.h"
#include "runtime/context.h"
#include "sharding/plan/held_part.h"
#include "sharding/strategy/tensor_ranks.h"
#include "tests/sharding/ranks.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::relative_error;
using test::tensor_of;
using test::to_doubles;
using Values = std::vector<double>;

constexpr int kParts = 8;
constexpr std::int64_t kShared = 16;    // rows that the parts divide
constexpr std::int64_t kUnshared = 13;  // rows that they do not: every rank has all

// ---- parts of tensors

/// Columns [first, first + count) of a matrix of `columns` columns.
Values columns_of(const Values& matrix, std::int64_t columns, std::int64_t first,
                  std::int64_t count) {
  Values result;
  for (auto row = matrix.begin(); row != matrix.end(); row += columns) {
    result.insert(result.end(), row + first, row + first + count);
  }
  return result;
}

/// The matrices next to each other.
Tensor side_by_side(const Tensor& a, const Tensor& b) {
  const auto left = to_doubles(a), right = to_doubles(b);
  Values result;
  for (std::int64_t row = 0; row < a.size(0); ++row) {
    for (const auto& [values, columns] : {std::pair(&left, a.size(1)), {&right, b.size(1)}}) {
      const auto begin = values->begin() + row * columns;
      result.insert(result.end(), begin, begin + columns);
    }
  }
  return tensor_of(result, {a.size(0), a.size(1) + b.size(1)}, a.dtype());
}

/// A parameter that is cut over the axis, with its window open on this rank's part of `whole`.
Parameter cut_parameter(const SharedAxis& axis, const Tensor& whole, const Cut& cut) {
  const Parameter parameter("weight", whole.shape(), Initializer::zeros());
  parameter.set_cut(cut);
  const CutSizes sizes = {.tensors = axis->ranks(), .sum_parts = axis->sum_parts()};
  const HeldPart held = held_part(parameter, sizes, /*expert=*/0, axis->rank());
  const Values from = to_doubles(whole);
  Values part(static_cast<std::size_t>(held.shape.numel()), 0.0);
  held.elements.for_each_run(held.count,
                             [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
                               std::copy_n(from.begin() + element, count, part.begin() + offset);
                             });
  parameter.share_out(axis, held.shape);
  parameter.open(tensor_of(part, held.shape, whole.dtype()));
  return parameter;
}
Tensor part_of(const SharedAxis& axis, const Tensor& whole, const Cut& cut) {
  return cut_parameter(axis, whole, cut).data();
}

Cut by_rows(Divided divided = Divided::outputs) {
  return {.divided = divided, .dimension = 0};
}
Cut by_columns(std::int64_t groups = 1) {
  return {.divided = Divided::outputs, .dimension = 1, .groups = groups};
}

// ---- ranks

/// The results on each of `ranks` ranks, for a pass over so many rows.
using Compute = std::function<std::vector<Tensor>(const SharedAxis&)>;
std::vector<std::vector<Values>> on_axis(int ranks, std::int64_t rows, RowExchange exchange,
                                         const Compute& compute) {
  std::vector<std::vector<Values>> results(static_cast<std::size_t>(ranks));
  current_stream().synchronize();  // it has written the ranks' inputs
  test::on_ranks(ranks, [&](Communicator& world) {
    TensorRanks::Groups groups = {.sums = ranks == 1 ? nullptr : &world};
    if (exchange == RowExchange::by_rank && ranks > 1) groups.rows = world.split(/*color=*/0);
    const auto axis = std::make_shared<TensorRanks>(groups, kParts);
    axis->begin(1, rows);
    for (const Tensor& result : compute(axis)) {
      results[static_cast<std::size_t>(world.rank())].push_back(to_doubles(result));
    }
  });
  return results;
}
std::vector<std::vector<Values>> on_axis(int ranks, std::int64_t rows, const Compute& compute) {
  return on_axis(ranks, rows, RowExchange::together, compute);
}

/// Result `i` of all ranks, in their order.
Values joined(const std::vector<std::vector<Values>>& results, std::size_t i) {
  Values all;
  for (const auto& of_rank : results) all.insert(all.end(), of_rank[i].begin(), of_rank[i].end());
  return all;
}
/// Result `i`, which all ranks have.
Values common(const std::vector<std::vector<Values>>& results, std::size_t i) {
  for (const auto& of_rank : results) REQUIRE((of_rank[i] == results[0][i]));
  return results[0][i];
}
Values rows_of_all(const std::vector<std::vector<Values>>& results, std::size_t i,
                   std::int64_t rows) {
  return rows % kParts == 0 ? joined(results, i) : common(results, i);
}

/// `compute` has this rank's rows as its result. For every number of ranks the rows of all have the bits of
/// one rank, and the expected values.
void check_rows(std::int64_t rows, DType dtype, const Values& expected,
                const std::function<Tensor(const SharedAxis&)>& compute) {
  Values one;
  const Compute alone = [&](const SharedAxis& axis) { return std::vector{compute(axis)}; };
  for (const int ranks : {1, 2, 4, 8}) {
    for (const RowExchange exchange : {RowExchange::together, RowExchange::by_rank}) {
      CAPTURE(ranks, rows, name_of(dtype), enum_name(exchange));
      const Values all = rows_of_all(on_axis(ranks, rows, exchange, alone), 0, rows);
      if (one.empty()) one = all;
      CHECK((all == one));
      CHECK(relative_error(all, expected) <= (dtype == DType::f32 ? 2e-6 : 0x1p-8));
    }
  }
}

/// a [N, K] b [K, M] in float64.
Values product(const Values& a, const Values& b, std::int64_t K, std::int64_t M) {
  const auto N = std::ssize(a) / K;
  Values c(static_cast<std::size_t>(N * M), 0.0);
  for (std::int64_t n = 0; n < N; ++n) {
    for (std::int64_t k = 0; k < K; ++k) {
      for (std::int64_t m = 0; m < M; ++m) c[n * M + m] += a[n * K + k] * b[k * M + m];
    }
  }
  return c;
}
Values transposed(const Values& a, std::int64_t columns) {
  Values result;
  for (std::int64_t c = 0; c < columns; ++c) {
    const Values column = columns_of(a, columns, c, 1);
    result.insert(result.end(), column.begin(), column.end());
  }
  return result;
}
/// c += a, with the rows of c as long as a or as many times.
void add_to(Values& c, const Values& a) {
  for (std::size_t i = 0; i < c.size(); ++i) c[i] += a[i % a.size()];
}

}  // namespace

TEST_CASE("divided: sums over inputs have the bits of one rank, with a bias and a residual") {
  const test::Rank rank;
  constexpr std::int64_t I = 64, O = 12;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t rows : {kShared, kUnshared}) {
      const Tensor x = normal_tensor({rows, I}, dtype, "x"),
                   bias = normal_tensor({O}, dtype, "bias"),
                   residual = normal_tensor({rows, O}, dtype, "residual"),
                   out_in = normal_tensor({O, I}, dtype, "weight"),
                   in_out = normal_tensor({I, O}, dtype, "weight");
      Values expected = product(to_doubles(x), to_doubles(in_out), I, O);
      check_rows(rows, dtype, expected, [&](const SharedAxis& axis) {
        return sum_over_inputs(axis, part_of(axis, x, by_columns()),
                               part_of(axis, in_out, by_rows(Divided::inputs)), Transpose::no, {},
                               {});
      });
      expected = product(to_doubles(x), transposed(to_doubles(out_in), I), I, O);
      add_to(expected, to_doubles(bias));
      add_to(expected, to_doubles(residual));
      check_rows(rows, dtype, expected, [&](const SharedAxis& axis) {
        return sum_over_inputs(axis, part_of(axis, x, by_columns()),
                               part_of(axis, out_in, by_columns()), Transpose::yes, bias.clone(),
                               own_rows(axis, residual));
      });
    }
  }
}

TEST_CASE("divided: sums over the outputs of joined layers have the bits of one rank") {
  const test::Rank rank;
  constexpr std::int64_t I = 12, Q = 128, K = 64;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t rows : {kShared, kUnshared}) {
      const Tensor q = normal_tensor({Q, I}, dtype, "q"), k = normal_tensor({K, I}, dtype, "k"),
                   dq = normal_tensor({rows, Q}, dtype, "dq"),
                   dk = normal_tensor({rows, K}, dtype, "dk"),
                   received = normal_tensor({rows, I}, dtype, "received");
      Values expected = product(to_doubles(dq), to_doubles(q), Q, I);
      add_to(expected, product(to_doubles(dk), to_doubles(k), K, I));
      add_to(expected, to_doubles(received));
      check_rows(rows, dtype, expected, [&](const SharedAxis& axis) {
        const JoinedParameters weights(
            {cut_parameter(axis, q, by_rows()), cut_parameter(axis, k, by_rows())});
        const Tensor dy =
            side_by_side(part_of(axis, dq, by_columns()), part_of(axis, dk, by_columns()));
        return sum_over_outputs(axis, dy, weights, Transpose::yes)
            .rounded({}, own_rows(axis, received), dtype);
      });
    }
  }
}

TEST_CASE("divided: sums over outputs in groups, as GPT-2 packs them, have the bits of one rank") {
  const test::Rank rank;
  constexpr std::int64_t I = 12, O = 3 * 64;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t rows : {kShared, kUnshared}) {
      const Tensor weight = normal_tensor({I, O}, dtype, "weight"),
                   dy = normal_tensor({rows, O}, dtype, "dy");
      const Values expected = product(to_doubles(dy), transposed(to_doubles(weight), O), O, I);
      check_rows(rows, dtype, expected, [&](const SharedAxis& axis) {
        return sum_over_outputs(axis, part_of(axis, dy, by_columns(3)),
                                cut_parameter(axis, weight, by_columns(3)), Transpose::no)
            .rounded({}, {}, dtype);
      });
    }
  }
}

TEST_CASE("divided: whole rows and columns are gathered from the ranks' own") {
  const test::Rank rank;
  constexpr std::int64_t C = 13;
  for (const std::int64_t rows : {kShared, kUnshared}) {
    const Tensor x = normal_tensor({rows, C}, DType::f32, "x");
    // Each rank's columns are a part of C padded to the parts, as logits of a vocabulary are.
    const Tensor classes = tensor_of(transposed(to_doubles(x), C), {C, rows}, DType::f32);
    for (const int ranks : {1, 2, 4, 8}) {
      CAPTURE(ranks, rows);
      const auto results = on_axis(ranks, rows, [&](const SharedAxis& axis) {
        const Tensor own = part_of(axis, classes, by_rows(Divided::vocabulary));
        const Tensor columns =
            tensor_of(transposed(to_doubles(own), rows), {rows, own.size(0)}, DType::f32);
        return std::vector{own_rows(axis, x).clone(), whole_rows(axis, own_rows(axis, x)),
                           whole_columns(axis, columns, C)};
      });
      CHECK((rows_of_all(results, 0, rows) == to_doubles(x)));
      CHECK((common(results, 1) == to_doubles(x)));
      CHECK((common(results, 2) == to_doubles(x)));
    }
  }
}

// A rank begins with the rows that it has. Nothing else may be read before it has arrived.
TEST_CASE(
    "divided: rows that travel by rank arrive after the own ones, from the ranks before this one") {
  const test::Rank rank;
  constexpr std::int64_t C = 3;
  for (const RowExchange exchange : {RowExchange::together, RowExchange::by_rank}) {
    for (const std::int64_t rows : {kShared, kUnshared}) {
      for (const int ranks : {1, 2, 4, 8}) {
        // Memory has no row of it from another case.
        const Tensor x =
            normal_tensor({rows, C}, DType::f32, fmt::format("{} {}", ranks, enum_name(exchange)));
        CAPTURE(ranks, rows, enum_name(exchange));
        const bool by_rank = exchange == RowExchange::by_rank && rows == kShared && ranks > 1;
        const auto results = on_axis(ranks, rows, exchange, [&](const SharedAxis& axis) {
          context().side_stream("rows of tensor ranks").set_delay([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          });
          GatheredRows gathered(axis, own_rows(axis, x));
          std::int64_t number = 0;
          gathered.for_each_range([&](const RowRange& range, const Factor& own) {
            const std::int64_t owner = (axis->rank() - number++ + ranks) % ranks;
            const std::int64_t count = by_rank ? rows / ranks : rows;
            check(range.first == (by_rank ? owner * count : 0) && range.count == count,
                  "range {} is {} rows from {} on", number, range.count, range.first);
            check(test::same_bits(own.values.clone(), range.of(x).clone()),
                  "range {} has other rows", number);
          });
          check(number == (by_rank ? ranks : 1), "{} ranges", number);
          GatheredRows again(axis, own_rows(axis, x));
          return std::vector{again.whole().values,
                             GatheredRows(axis, own_rows(axis, x)).take().values};
        });
        CHECK((common(results, 0) == to_doubles(x)));
        CHECK((common(results, 1) == to_doubles(x)));
      }
    }
  }
}

TEST_CASE("divided: a sum over rows has the bits of one rank, overwriting and adding") {
  const test::Rank rank;
  constexpr std::int64_t C = 37;
  for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
    for (const std::int64_t rows : {kShared, kUnshared}) {
      const Tensor dy = normal_tensor({rows, C}, DType::f32, "dy");
      const Tensor before = normal_tensor({C}, DType::f32, "before");
      Values expected =
          product(Values(static_cast<std::size_t>(rows), 1.0), to_doubles(dy), rows, C);
      if (accumulate == Accumulate::yes) add_to(expected, to_doubles(before));
      Values one;
      for (const int ranks : {1, 2, 4, 8}) {
        CAPTURE(ranks, rows, accumulate == Accumulate::yes);
        const auto results = on_axis(ranks, rows, [&](const SharedAxis& axis) {
          const Parameter norm("norm", {C}, Initializer::zeros());
          norm.share_out(axis, norm.shape());
          norm.open_gradient(accumulate == Accumulate::yes ? before.clone()
                                                           : test::poisoned({C}, DType::f32));
          RowSum sum(norm, accumulate);
          const std::int64_t leaves = row_leaves(axis);
          for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
            const Tensor own = rows_of_leaf(own_rows(axis, dy), leaf, leaves);
            bias_backward(sum.next(), own, sum.accumulate());
            sum.added();
          }
          sum.finish();
          return std::vector{norm.gradient()};
        });
        const Values all = common(results, 0);
        if (ranks == 1) one = all;
        CHECK((all == one));
        CHECK(relative_error(all, expected) <= 2e-6);
      }
    }
  }
}

TEST_CASE("divided: a frozen parameter's sum over rows asks for no gradient") {
  const test::Rank rank;
  on_axis(2, kShared, [](const SharedAxis& axis) {
    const Parameter norm("norm", {3}, Initializer::zeros());
    norm.share_out(axis, norm.shape());
    norm.set_trainable(false);
    RowSum sum(norm, Accumulate::no);
    check(!sum.next().defined(), "a frozen parameter has a gradient");
    sum.added();
    sum.finish();
    return std::vector<Tensor>();
  });
}

namespace {

/// The head's loss in float64, and its gradients.
struct LossReference {
  double loss = 0.0;
  Values dx, dweight;

  LossReference(const Tensor& x, const Tensor& weight, const Tensor& targets, double scale) {
    const std::int64_t C = x.size(1), V = weight.size(0);
    const Values rows = to_doubles(x), classes = to_doubles(weight);
    Values gradients =
        product(rows, transposed(classes, C), C, V);  // of logits, which they are first
    const auto target = targets.to_vector<std::int32_t>();
    for (std::size_t n = 0; n < target.size(); ++n) {
      double* const row = gradients.data() + n * static_cast<std::size_t>(V);
      const double most = *std::max_element(row, row + V);
      double sum = 0.0;
      for (std::int64_t v = 0; v < V; ++v) sum += std::exp(row[v] - most);
      const bool counts = target[n] != kIgnoreIndex;
      if (counts) loss += scale * (most + std::log(sum) - row[target[n]]);
      for (std::int64_t v = 0; v < V; ++v) {
        const double probability = std::exp(row[v] - most) / sum;
        row[v] = counts ? scale * (probability - (v == target[n] ? 1.0 : 0.0)) : 0.0;
      }
    }
    dx = product(gradients, classes, V, C);
    dweight = product(transposed(gradients, V), rows, std::ssize(target), C);
  }
};

/// The loss, dx of this rank's rows, and dweight of its part, which had the values of `before`.
std::vector<Tensor> differentiated_loss(const SharedAxis& axis, const Tensor& x,
                                        const Tensor& weight, const Tensor& targets, double scale,
                                        const Tensor& before, std::int64_t chunk) {
  const Cut cut = by_rows(Divided::vocabulary);
  const Parameter head = cut_parameter(axis, weight, cut);
  HeadGradients gradients = {.dx = test::poisoned(x.shape(), DType::f32),
                             .dweight = test::poisoned(head.held_shape(), DType::f32)};
  if (before.defined()) {
    gradients.accumulate = Accumulate::yes;
    gradients.dweight = part_of(axis, before, cut);
  }
  const Tensor loss = test::poisoned({1}, DType::f32);
  divided_cross_entropy(loss, gradients, x, head, targets, scale, kIgnoreIndex, chunk,
                        /*factors=*/{});
  return {loss, scatter_sums(axis, gradients.dx).clone(), gradients.dweight};
}

}  // namespace

// A part of 21 classes on 8 parts has 3, and the last none; of 19 classes the seventh has 1; of 5 three
// parts have none.
TEST_CASE("divided: the head's loss and gradients have the bits of one rank") {
  const test::Rank rank;
  constexpr std::int64_t C = 16;
  constexpr double kScale = 0.125;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t classes : {32, 21, 19, 5}) {
      for (const std::int64_t rows : {kShared, kUnshared}) {
        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
          const Tensor x = normal_tensor({rows, C}, dtype, "x"),
                       weight = normal_tensor({classes, C}, dtype, "weight");
          auto target = test::index_tensor({rows}, classes, "targets").to_vector<std::int32_t>();
          target[3] = kIgnoreIndex;
          target[4] = static_cast<std::int32_t>(classes - 1);
          const Tensor targets = Tensor::from(target, {rows});
          LossReference expected(x, weight, targets, kScale);
          Tensor before;
          if (accumulate == Accumulate::yes) {
            before = normal_tensor({classes, C}, DType::f32, "before");
            add_to(expected.dweight, to_doubles(before));
          }
          const double bound = dtype == DType::f32 ? 2e-6 : 0x1p-8;
          std::vector<Values> one;
          for (const int ranks : {1, 2, 4, 8}) {
            CAPTURE(name_of(dtype), classes, rows, ranks, accumulate == Accumulate::yes);
            const auto results = on_axis(ranks, rows, [&](const SharedAxis& axis) {
              return differentiated_loss(axis, x, weight, targets, kScale, before, /*chunk=*/6);
            });
            Values dweight = joined(results, 2);
            for (std::size_t i = expected.dweight.size(); i < dweight.size(); ++i) {
              REQUIRE(dweight[i] == 0.0);  // the padding
            }
            dweight.resize(expected.dweight.size());
            const std::vector<Values> all = {common(results, 0), rows_of_all(results, 1, rows),
                                             dweight};
            if (ranks == 1) one = all;
            CHECK((all == one));
            CHECK(relative_error(all[0], {expected.loss}) <= 2e-6);
            CHECK(relative_error(all[1], expected.dx) <= bound);
            CHECK(relative_error(all[2], expected.dweight) <= bound);
          }
        }
      }
    }
  }
}

}  // namespace tessera
