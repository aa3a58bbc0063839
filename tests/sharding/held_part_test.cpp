// The part of a parameter that a rank holds: each element's owner, for all cuts and numbers of ranks.
#include "sharding/plan/held_part.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "runtime/integer.h"
#include "tests/support/error_of.h"

namespace tessera {
namespace {

using Numbers = std::vector<std::int64_t>;
using test::error_of;

Parameter parameter(const std::string& name, const Shape& shape, const Cut& cut,
                    bool stacked = false) {
  const Parameter result(name, shape, Initializer::zeros());
  result.set_cut(cut);
  if (stacked) result.set_stacked();
  return result;
}

constexpr std::int64_t kPieces = 840;  // a multiple of 1, 2, ..., 8
constexpr std::int64_t kExperts = 24;

std::vector<Parameter> parameters() {
  constexpr auto kOut = Divided::outputs, kIn = Divided::inputs, kRows = Divided::vocabulary;
  return {
      parameter("rows", {kPieces, 3}, {kOut, 0, 1, kPieces}),
      parameter("columns", {5, 2 * kPieces}, {kIn, 1, 1, kPieces}),
      parameter("bias", {kPieces}, {kOut, 0, 1, kPieces}),
      // Queries, keys and values next to each other, as GPT-2's c_attn has them.
      parameter("c_attn.weight", {4, 3 * kPieces}, {kOut, 1, 3, kPieces, "head"}),
      parameter("c_attn.bias", {3 * kPieces}, {kOut, 0, 3, kPieces, "head"}),
      parameter("joined rows", {2 * kPieces, 3}, {kOut, 0, 2, kPieces}),
      // As many rows as parts, fewer, and numbers that few grids divide.
      parameter("vocabulary", {840, 2}, {kRows, 0, 1, 840, "token"}),
      parameter("odd vocabulary", {101, 3}, {kRows, 0, 1, 101, "token"}),
      parameter("small vocabulary", {5, 2}, {kRows, 0, 1, 5, "token"}),
      parameter("heads of keys", {6 * kPieces, 2}, {kOut, 0, 1, 2, "head", 12}),
      parameter("norm", {7}, {}),
      parameter("experts", {kExperts, 5}, {}, true),
      parameter("experts.up", {kExperts, 2, 2 * kPieces}, {kOut, 2, 2, kPieces}, true),
      parameter("experts.down", {kExperts, kPieces, 2}, {kIn, 1, 1, kPieces}, true),
  };
}

/// Numbers of ranks that share out experts and channels, and parts of sums.
std::vector<CutSizes> all_sizes() {
  std::vector<CutSizes> sizes;
  for (const int experts : {1, 2, 3, 4, 6, 8}) {
    for (int tensors = 1; tensors <= 8; ++tensors) {
      for (const int parts_of_rank : {1, 2, 5}) {
        sizes.push_back({experts, tensors, parts_of_rank * tensors});
      }
    }
  }
  return sizes;
}

/// Rows of every rank's part of a vocabulary, with its padding.
std::int64_t rows_of_vocabulary(std::int64_t rows, const CutSizes& sizes) {
  return ceil_div(rows, std::int64_t{sizes.sum_parts}) * sizes.sum_parts / sizes.tensors;
}

struct Place {
  std::int64_t expert = 0, tensor = 0;
  bool operator==(const Place&) const = default;
};

/// The rank that holds an element, by its coordinates.
Place owner(const Parameter& of, std::int64_t element, const CutSizes& sizes) {
  const Shape& shape = of.shape();
  Place place;
  if (of.stacked()) place.expert = element / (of.numel() / sizes.experts);
  const Cut& cut = of.cut();
  if (cut.divided == Divided::nothing || sizes.tensors == 1) return place;
  std::int64_t behind = 1;
  for (int i = cut.dimension + 1; i < shape.rank(); ++i) behind *= shape[i];
  const std::int64_t extent = shape[cut.dimension], at = element / behind % extent;
  if (cut.divided == Divided::vocabulary) {
    place.tensor = at / rows_of_vocabulary(extent, sizes);
  } else {
    const std::int64_t channels = extent / cut.groups;
    place.tensor = at % channels / (channels / sizes.tensors);
  }
  return place;
}

/// The elements of each rank (expert * tensors + tensor), in the parameter's order.
std::vector<Numbers> elements_of_ranks(const Parameter& of, const CutSizes& sizes) {
  std::vector<Numbers> elements(static_cast<std::size_t>(sizes.experts * sizes.tensors));
  for (std::int64_t i = 0; i < of.numel(); ++i) {
    const Place place = owner(of, i, sizes);
    elements[static_cast<std::size_t>(place.expert * sizes.tensors + place.tensor)].push_back(i);
  }
  return elements;
}

Numbers elements_of(const HeldPart& part) {
  Numbers elements;
  part.elements.for_each_run(part.count,
                             [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
                               elements.resize(static_cast<std::size_t>(offset + count));
                               std::iota(elements.begin() + offset, elements.end(), element);
                             });
  return elements;
}

}  // namespace

TEST_CASE("held parts: every element has one rank, in the parameter's order") {
  for (const Parameter& of : parameters()) {
    for (const CutSizes& sizes : all_sizes()) {
      if (!of.stacked() && sizes.experts > 1) continue;
      CAPTURE(of.name(), sizes.experts, sizes.tensors, sizes.sum_parts);
      const auto expected = elements_of_ranks(of, sizes);
      const bool is_cut = of.cut().divided != Divided::nothing && sizes.tensors > 1;
      for (int expert = 0; expert < sizes.experts; ++expert) {
        for (int tensor = 0; tensor < sizes.tensors; ++tensor) {
          const HeldPart part = held_part(of, sizes, expert, tensor);
          REQUIRE((elements_of(part) ==
                   expected[static_cast<std::size_t>(is_cut ? expert * sizes.tensors + tensor
                                                            : expert * sizes.tensors)]));
          REQUIRE(part.shape == held_shape(of, sizes));
        }
      }
    }
  }
}

TEST_CASE("held parts: equal shapes, with padding behind a vocabulary's last row alone") {
  for (const Parameter& of : parameters()) {
    for (const CutSizes& sizes : all_sizes()) {
      if (!of.stacked() && sizes.experts > 1) continue;
      CAPTURE(of.name(), sizes.experts, sizes.tensors, sizes.sum_parts);
      const Cut& cut = of.cut();
      Shape expected = of.shape();
      if (of.stacked()) expected = expected.with(0, expected[0] / sizes.experts);
      if (cut.divided == Divided::vocabulary && sizes.tensors > 1) {
        expected = expected.with(0, rows_of_vocabulary(expected[0], sizes));
      } else if (cut.divided != Divided::nothing) {
        expected = expected.with(cut.dimension, expected[cut.dimension] / sizes.tensors);
      }
      CHECK(held_shape(of, sizes) == expected);
      bool is_behind = false;  // the last row
      for (int tensor = 0; tensor < sizes.tensors; ++tensor) {
        const HeldPart part = held_part(of, sizes, 0, tensor);
        const std::int64_t padding = part.shape.numel() - part.count;
        REQUIRE(padding >= 0);
        if (cut.divided != Divided::vocabulary) REQUIRE(padding == 0);
        if (is_behind) REQUIRE(part.count == 0);
        is_behind = padding > 0;
      }
    }
  }
}

TEST_CASE("held parts: a sum of one part divides nothing, and several parts on one rank do") {
  const Parameter up = parameter("up", {6, 3}, {Divided::outputs, 0, 1, 6});
  CHECK(!is_divided(up, {.tensors = 1, .sum_parts = 1}));
  CHECK(is_divided(up, {.tensors = 1, .sum_parts = 2}));
  CHECK(!is_divided(parameter("norm", {6}, {}), {.tensors = 2, .sum_parts = 2}));
}

TEST_CASE(
    "held parts: sharers and copies of a head of keys are as many for every number of ranks") {
  struct Case {
    std::int64_t heads, uses, ranks, own_parts;
    std::int64_t pieces, sharers, copies;
  };
  for (const Case& c :
       {// 8 heads of queries and 2 of keys. Four ranks could share a head with a grid of 8.
        Case{2, 4, 1, 8, 2, 1, 4}, Case{2, 4, 2, 4, 1, 1, 4}, Case{2, 4, 4, 2, 1, 2, 2},
        Case{2, 4, 8, 1, 1, 4, 1},
        // With a grid of 4 only two could, and without a grid those that there are.
        Case{2, 4, 1, 4, 2, 1, 2}, Case{2, 4, 4, 1, 1, 2, 1}, Case{2, 4, 1, 1, 2, 1, 1},
        // 12 heads of queries: 4 of the parts of a grid have equal numbers of them.
        Case{2, 6, 1, 8, 2, 1, 2}, Case{2, 6, 4, 2, 1, 2, 1},
        // No power of two is a multiple of 3 heads.
        Case{3, 2, 1, 8, 3, 1, 1}, Case{8, 1, 2, 4, 4, 1, 1}}) {
    CAPTURE(c.heads, c.uses, c.ranks, c.own_parts);
    const Cut cut = {.divided = Divided::outputs, .pieces = c.heads, .uses = c.uses};
    const HeldPieces held = held_pieces(cut, c.ranks, c.own_parts);
    CHECK(held.pieces == c.pieces);
    CHECK(held.sharers == c.sharers);
    CHECK(held.copies == c.copies);
  }
}

TEST_CASE("held parts: an error names the key, and the pieces that it does not divide") {
  const auto error = [](const Parameter& of, const CutSizes& sizes) {
    return error_of([&] { check_cut(of, sizes); });
  };
  const Parameter experts = parameter("experts", {6, 4}, {}, true);
  CHECK(error(experts, {.experts = 3}) == "no error");
  CHECK(error(experts, {.experts = 4}) ==
        "sharding.expert_parallel 4 does not divide the 6 experts of 'experts'");

  // Six heads of four channels, of three kinds.
  const Parameter c_attn =
      parameter("c_attn", {5, 72}, {Divided::outputs, 1, 3, /*pieces=*/6, "head"});
  CHECK(error(c_attn, {.tensors = 2, .sum_parts = 8}) == "no error");
  CHECK(error(c_attn, {.tensors = 4, .sum_parts = 8}) ==
        "sharding.tensor_parallel 4 does not divide the 6 heads of 'c_attn'");
  CHECK(error(c_attn, {.tensors = 2, .sum_parts = 16}) ==
        "sharding.grid 16 does not divide the 24 channels of 'c_attn'");
  CHECK(error(c_attn, {.tensors = 1, .sum_parts = 1}) == "no error");

  // Two heads of keys, each for three heads of queries: 2 or 6 ranks.
  const Parameter keys = parameter("keys", {24, 5}, {Divided::outputs, 0, 1, 2, "head", 3});
  CHECK(error(keys, {.tensors = 2, .sum_parts = 2}) == "no error");
  CHECK(error(keys, {.tensors = 6, .sum_parts = 6}) == "no error");
  for (const int tensors : {3, 4, 8}) {
    CHECK(error(keys, {.tensors = tensors, .sum_parts = tensors}) ==
          fmt::format("sharding.tensor_parallel {} does not divide the 2 heads of 'keys', nor can "
                      "they be shared by so many ranks",
                      tensors));
  }

  const Parameter down = parameter("down", {5, 12}, {Divided::inputs, 1, 1, 12});
  CHECK(error(down, {.tensors = 8, .sum_parts = 8}) ==
        "sharding.tensor_parallel 8 does not divide the 12 channels of 'down'");
  const Parameter table = parameter("table", {13, 2}, {Divided::vocabulary, 0, 1, 13, "token"});
  CHECK(error(table, {.tensors = 8, .sum_parts = 64}) == "no error");
}

}  // namespace tessera
