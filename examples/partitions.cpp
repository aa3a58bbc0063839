// Prints the partitions of a small model under zero3, fsdp and fsdp flat as JSON.
//
// A Partition is a value: no memory is allocated and no rank runs. To draw the figure of the book:
//
//   build/bin/partitions | docs/figures/partitions.py > docs/figures/partitions.svg
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sharding/plan/partition.h"

using namespace tessera;
using Json = nlohmann::ordered_json;

namespace {

constexpr int kRanks = 4;

/// Tied embeddings and two layers, in sizes that four ranks do not divide.
Units small_model() {
  constexpr std::int64_t kVocab = 45;
  constexpr std::int64_t kWidth = 9;
  constexpr std::int64_t kHidden = 30;
  const Initializer zeros = Initializer::zeros();
  Units units;
  units.push_back(std::make_unique<Unit>(
      "embedding",
      std::vector{Parameter("table", {kVocab, kWidth}, zeros), Parameter("norm", {kWidth}, zeros)},
      /*at_both_ends=*/true));
  for (const std::string layer : {"layer 0", "layer 1"}) {
    units.push_back(std::make_unique<Unit>(
        layer, std::vector{Parameter(layer + ".up", {kWidth, kHidden}, zeros),
                           Parameter(layer + ".bias", {kHidden}, zeros),
                           Parameter(layer + ".down", {kHidden, kWidth}, zeros)}));
  }
  return units;
}

/// The pieces of a bucket's buffer that belong to one rank: padding included.
Json pieces_of(const BucketLayout& bucket) {
  Json pieces = Json::array();
  const auto add = [&](const Range& range, int rank) {
    pieces.push_back({{"first", range.first}, {"count", range.count}, {"rank", rank}});
  };
  for (const Segment& segment : bucket.segments) {
    if (segment.owner >= 0) {
      add(segment.range, segment.owner);
      continue;
    }
    for (int rank = 0; rank < kRanks; ++rank) add(part_of(segment, kRanks, rank), rank);
  }
  return pieces;
}

Json parameters_of(const BucketLayout& bucket) {
  Json parameters = Json::array();
  for (std::size_t p = 0; p < bucket.parameters.size(); ++p) {
    const Parameter& parameter = bucket.parameters[p];
    const std::string& name = parameter.name();
    parameters.push_back({{"name", name.substr(name.find('.') + 1)},
                          {"shape", fmt::format("{}", fmt::join(parameter.shape(), " x "))},
                          {"first", bucket.offsets[p]},
                          {"count", parameter.numel()}});
  }
  return parameters;
}

Json partition_of(const std::string& title, Layout layout, const Units& units) {
  const Partition partition(layout, kRanks, make_buckets(units));
  Json buckets = Json::array();
  for (const BucketLayout& bucket : partition.buckets()) {
    buckets.push_back({{"name", bucket.name},
                       {"elements", bucket.elements},
                       {"pieces", pieces_of(bucket)},
                       {"parameters", parameters_of(bucket)}});
  }
  Json owned = Json::array();
  for (int rank = 0; rank < kRanks; ++rank) owned.push_back(partition.owned_elements(rank));
  return {{"title", title}, {"buckets", buckets}, {"owned", owned}};
}

}  // namespace

int main() {
  const Units units = small_model();
  const Json partitions = {
      partition_of("zero3: whole tensors", Layout::tensors, units),
      partition_of("fsdp: rows of every tensor", Layout::rows, units),
      partition_of("fsdp, flattened: one vector per bucket", Layout::flat, units)};
  fmt::print("{}\n", partitions.dump(1));
}
