#include "tools/data/mixture.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "runtime/random.h"
#include "tests/support/error_of.h"

namespace tessera {
namespace {

using Catch::Contains;

std::vector<std::int64_t> random_weights(const RandomStream& random) {
  std::vector<std::int64_t> weights(2 + random.below(0, 9));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    // Some sources have nearly everything, and some have no part.
    const std::uint64_t most = random.below(3 * i + 1, 2) == 0 ? 9 : 900;
    weights[i] = static_cast<std::int64_t>(random.below(3 * i + 2, most));
  }
  weights[0] += 1;
  return weights;
}

}  // namespace

TEST_CASE("a fair order gives each source its share of every prefix, to one row") {
  for (std::uint64_t number = 0; number < 200; ++number) {
    const std::vector<std::int64_t> weights = random_weights(RandomStream(3, "weights", number));
    const std::int64_t total = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
    const FairOrder order(weights);
    std::vector<std::int64_t> counts(weights.size(), 0);
    bool numbered = true, fair = true;
    for (std::int64_t row = 0; row < 2 * total; ++row) {
      const auto [source, number_in_source] = order.at(row);
      numbered = numbered && number_in_source == counts[source]++;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        fair = fair && std::abs(counts[i] * total - (row + 1) * weights[i]) < total;
      }
      if (row + 1 == total) CHECK(counts == weights);
      if (row % 97 == 0) CHECK(order.counts(row + 1) == counts);
    }
    CAPTURE(number, weights);
    CHECK(numbered);
    CHECK(fair);
  }
}

TEST_CASE("the order of rows does not depend on which rows were asked for before") {
  const std::vector<std::int64_t> weights = {70001, 20011, 13, 9000};
  const FairOrder forwards(weights), backwards(weights);
  std::vector<std::pair<std::size_t, std::int64_t>> rows;
  for (std::int64_t row = 0; row < 300'000; row += 101) rows.push_back(forwards.at(row));
  bool same = true;
  for (std::int64_t row = 299'970; row >= 0; row -= 101) {  // 101 * 2970
    same = same && rows[static_cast<std::size_t>(row / 101)] == backwards.at(row);
  }
  CHECK(same);
}

TEST_CASE("a fair order counts rows far beyond 2^31") {
  const FairOrder order({2, 1});
  const std::int64_t row = std::int64_t{3} << 40;
  CHECK(order.counts(row) ==
        std::vector<std::int64_t>{std::int64_t{2} << 40, std::int64_t{1} << 40});
  const FairOrder even({1, 1});
  CHECK(even.at(2 * row).second == row);
}

TEST_CASE("decimal weights become the smallest whole numbers that a share needs") {
  using Weights = std::vector<std::int64_t>;
  CHECK(whole_weights(std::vector{0.7, 0.2, 0.1}) == Weights{7, 2, 1});
  CHECK(whole_weights(std::vector{3.0, 0.0, 1.0}) == Weights{3, 0, 1});
  CHECK(whole_weights(std::vector{0.125, 2.5}) == Weights{125, 2500});
  CHECK(whole_weights(std::vector{1.0 / 3.0, 1.0}) == Weights{333333333, 1000000000});
  CHECK(FairOrder(whole_weights(std::vector{0.7, 0.2, 0.1})).total() == 10);
  CHECK_THAT(test::error_of([] {
               const std::vector<double> weights = {3.0, 1e-9};
               FairOrder{whole_weights(weights)};
             }),
             Contains("as whole numbers their sum is 3000000001") && Contains("round them"));
  CHECK_THAT(test::error_of([] { FairOrder({0, 0}); }), Contains("no weight is positive"));
}

TEST_CASE("a mixture by epochs has passed over each source as often as its weight says") {
  // 1.5 passes of 40 rows, 2 of 7.
  const Mixture mixture({{.source = 0, .weight = 1.5}, {.source = 1, .weight = 2}},
                        {{40, 400}, {7, 70}}, MixtureKind::by_epochs, 4);
  CHECK(mixture.epoch_rows() == 74);
  CHECK(mixture.counts(74) == std::vector<std::int64_t>{60, 14});
  CHECK(mixture.counts(37) == std::vector<std::int64_t>{30, 7});
}

TEST_CASE("a mixture by tokens gives sources with emptier rows more rows") {
  // Half full rows: as many tokens take twice the rows.
  const Mixture mixture({{.source = 0}, {.source = 1}}, {{100, 1000}, {100, 500}},
                        MixtureKind::by_tokens, 4);
  CHECK(mixture.epoch_rows() == 200);
  const std::vector<std::int64_t> counts = mixture.counts(3'000'000);
  CHECK(std::abs(counts[0] - 1'000'000) <= 1);
  CHECK(std::abs(counts[1] - 2'000'000) <= 1);
}

TEST_CASE("a curriculum changes shares at its steps and goes on with each source's rows") {
  // Steps of 10 rows. Source 0: all of steps 1 to 3, then 1 of 5; source 1: 4 of 5 from step 4 to 6, then 3 of 4.
  const std::vector<MixturePart> parts = {
      {.source = 0, .weight = 1},
      {.source = 1, .weight = 4, .from_step = 4, .until_step = 6},
      {.source = 1, .weight = 3, .from_step = 7}};
  const Mixture mixture(parts, {{1000, 1000}, {1000, 1000}}, MixtureKind::by_tokens, 10);
  using Counts = std::vector<std::int64_t>;
  CHECK(mixture.counts(30) == Counts{30, 0});
  CHECK(mixture.counts(60) == Counts{36, 24});
  CHECK(mixture.counts(100) == Counts{46, 54});
  Counts counts = {0, 0};
  for (std::int64_t row = 0; row < 200; ++row) {
    const auto [source, number] = mixture.at(row);
    CHECK(number == counts[source]++);
  }
  CHECK(counts == mixture.counts(200));
  const auto error = [](std::vector<MixturePart> bad) {
    return test::error_of([&] { Mixture(bad, {{10, 10}}, MixtureKind::by_tokens, 10); });
  };
  CHECK_THAT(error({{.from_step = 3}}), Contains("no source has a weight in step 1"));
  CHECK_THAT(error({{.until_step = 5}}), Contains("no source has a weight in step 6"));
}

}  // namespace tessera
