// The owners of elements: by hand for small cases, by invariants for all layouts and 1,024 ranks.
#include "sharding/plan/partition.h"

#include <catch2/catch.hpp>
#include <map>
#include <numeric>

#include "runtime/check.h"

namespace tessera {
namespace {

Parameter parameter(const std::string& name, const Shape& shape, bool trainable = true) {
  const Parameter result(name, shape, Initializer::zeros());
  result.set_trainable(trainable);
  return result;
}

std::vector<Bucket> one_bucket(std::vector<Parameter> parameters) {
  return {{.name = "bucket", .units = {0}, .parameters = std::move(parameters)}};
}

std::vector<Range> owned_by_all(const Partition& partition, int parameter) {
  std::vector<Range> ranges;
  for (int shard = 0; shard < partition.shards(); ++shard) {
    ranges.push_back(partition.owned(0, parameter, shard));
  }
  return ranges;
}

/// Odd shapes, empty ones, and fewer rows than ranks; several buckets, some frozen.
std::vector<Bucket> odd_buckets() {
  return {{.name = "ends",
           .units = {0},
           .parameters = {parameter("a", {257, 3}), parameter("b", {5})},
           .at_both_ends = true},
          {.name = "middle",
           .units = {1},
           .parameters = {parameter("c", {3, 5, 7}), parameter("d", {1}), parameter("e", {0, 4}),
                          parameter("f", {17, 257}), parameter("g", {64, 9}, false),
                          parameter("h", {2}, false)}},
          {.name = "last", .units = {2}, .parameters = {parameter("i", {31}, false)}}};
}

/// Exhaustive: the smallest largest sum over all ways to cut.
std::int64_t best_by_search(const std::vector<std::int64_t>& sizes, std::size_t begin, int parts) {
  const std::int64_t all = std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(begin),
                                           sizes.end(), std::int64_t{0});
  if (parts == 1) return all;
  std::int64_t best = all;
  std::int64_t first = 0;
  for (std::size_t end = begin; end < sizes.size(); ++end) {
    first += sizes[end];
    best = std::min(best, std::max(first, best_by_search(sizes, end + 1, parts - 1)));
  }
  return best;
}

std::vector<std::int64_t> sums_of(const std::vector<std::int64_t>& sizes,
                                  const std::vector<int>& runs, int parts) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(parts), 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) sums[runs[i]] += sizes[i];
  return sums;
}

}  // namespace

TEST_CASE("rows: slices of dimension 0 by torch.chunk's rule") {
  // 5 rows on 4 ranks: 2, 2, 1, 0.
  const Partition partition(Layout::rows, 4, one_bucket({parameter("x", {5, 3})}));
  CHECK(owned_by_all(partition, 0) == std::vector<Range>{{0, 6}, {6, 6}, {12, 3}, {0, 0}});
  CHECK(partition.buckets()[0].segments[0].range == Range{0, 24});  // four slices of two rows
}

TEST_CASE("rows: the vectors of a bucket are one segment behind the matrices") {
  // 2 x 2 rows of 3 at 0; 2 x 1 row of 4 at 16; then 5 elements at 32 and 20 at 48: two parts of 32.
  const Partition partition(Layout::rows, 2,
                            one_bucket({parameter("b", {5}), parameter("x", {3, 3}),
                                        parameter("c", {20}), parameter("y", {2, 4})}));
  const BucketLayout& bucket = partition.buckets()[0];
  CHECK(bucket.offsets == std::vector<std::int64_t>{32, 0, 48, 16});
  REQUIRE(bucket.segments.size() == 3);
  CHECK(bucket.segments[0].range == Range{0, 12});
  CHECK(bucket.segments[1].range == Range{16, 8});
  CHECK(bucket.segments[2].range == Range{32, 64});
  CHECK(bucket.elements == 96);
  CHECK(owned_by_all(partition, 0) == std::vector<Range>{{0, 5}, {0, 0}});
  CHECK(owned_by_all(partition, 2) == std::vector<Range>{{0, 16}, {16, 4}});
}

TEST_CASE("flat: slices of the bucket as one vector") {
  // 20 + 9 elements; the second begins at 32; padded to 4 x 16: slices of 16.
  const Partition partition(Layout::flat, 4,
                            one_bucket({parameter("x", {4, 5}), parameter("y", {9})}));
  CHECK(partition.buckets()[0].elements == 64);
  CHECK(owned_by_all(partition, 0) == std::vector<Range>{{0, 16}, {16, 4}, {0, 0}, {0, 0}});
  CHECK(owned_by_all(partition, 1) == std::vector<Range>{{0, 0}, {0, 0}, {0, 9}, {0, 0}});
}

TEST_CASE("tensors: contiguous runs, the largest as small as possible") {
  const Partition partition(
      Layout::tensors, 2,
      one_bucket({parameter("x", {6}), parameter("y", {3}), parameter("z", {4})}));
  CHECK(owned_by_all(partition, 0) == std::vector<Range>{{0, 6}, {0, 0}});
  CHECK(owned_by_all(partition, 1) == std::vector<Range>{{0, 0}, {0, 3}});
  CHECK(owned_by_all(partition, 2) == std::vector<Range>{{0, 0}, {0, 4}});
}

TEST_CASE("whole: every rank owns everything") {
  const Partition partition(Layout::whole, 3, one_bucket({parameter("x", {5, 3})}));
  CHECK(owned_by_all(partition, 0) == std::vector<Range>(3, Range{0, 15}));
}

TEST_CASE("every element has one owner, inside that owner's part of the buffer") {
  for (const Layout layout : {Layout::tensors, Layout::rows, Layout::flat}) {
    for (const int shards : {1, 2, 3, 4, 7, 8, 64, 1024}) {
      INFO(name_of(layout) << " over " << shards);
      const Partition partition(layout, shards, odd_buckets());
      bool exact = true;
      std::int64_t total = 0;
      for (std::size_t b = 0; b < partition.buckets().size(); ++b) {
        const BucketLayout& bucket = partition.buckets()[b];
        for (std::size_t p = 0; p < bucket.parameters.size(); ++p) {
          std::int64_t next = 0;
          for (int shard = 0; shard < shards; ++shard) {
            const Range range = partition.owned(static_cast<int>(b), static_cast<int>(p), shard);
            if (range.count == 0) continue;
            exact = exact && range.first == next;
            next = range.end();
            const std::int64_t begin = bucket.offsets[p] + range.first;
            bool inside = false;
            for (const Segment& segment : bucket.segments) {
              const Range part = segment.owner == shard ? segment.range
                                 : segment.owner >= 0   ? Range{}
                                                        : part_of(segment, shards, shard);
              inside = inside || (begin >= part.first && begin + range.count <= part.end());
            }
            exact = exact && inside;
          }
          exact = exact && next == bucket.parameters[p].numel();
          total += next;
        }
      }
      CHECK(exact);
      std::int64_t owned = 0;
      for (int shard = 0; shard < shards; ++shard) owned += partition.owned_elements(shard);
      CHECK(owned == total);
    }
  }
}

TEST_CASE("buffers: aligned, without overlap, cut evenly, and trained parameters come first") {
  std::vector<Bucket> buckets = odd_buckets();
  for (const Layout layout : {Layout::whole, Layout::tensors, Layout::rows, Layout::flat}) {
    for (const int shards : {1, 2, 3, 8, 1024}) {
      INFO(name_of(layout) << " over " << shards);
      const Partition partition(layout, shards, buckets);
      for (const BucketLayout& bucket : partition.buckets()) {
        std::map<std::int64_t, std::int64_t> ends;  // by the begin of each parameter's place
        for (std::size_t p = 0; p < bucket.parameters.size(); ++p) {
          const Parameter& parameter = bucket.parameters[p];
          CHECK(bucket.offsets[p] % Partition::kAlignment == 0);
          const std::int64_t last = bucket.offsets[p] + parameter.numel();
          CHECK(parameter.trainable() == (last <= bucket.trainable_elements && last > 0));
          if (parameter.numel() > 0) CHECK(ends.emplace(bucket.offsets[p], last).second);
        }
        std::int64_t end = 0;
        for (const auto& [begin, last] : ends) {
          CHECK(begin >= end);
          end = last;
        }
        CHECK(end <= bucket.elements);
        end = 0;
        for (std::size_t s = 0; s < bucket.segments.size(); ++s) {
          const Segment& segment = bucket.segments[s];
          CHECK(segment.range.first >= end);
          end = segment.range.end();
          if (layout == Layout::rows || layout == Layout::flat) {
            CHECK(segment.range.count % shards == 0);
          }
          CHECK((static_cast<int>(s) < bucket.trainable_segments) ==
                (end <= bucket.trainable_elements));
        }
        CHECK(end <= bucket.elements);
      }
    }
  }
}

TEST_CASE("contiguous_min_max: as good as trying every cut, and every part gets an element") {
  const std::vector<std::vector<std::int64_t>> examples = {{10, 1, 1, 1},
                                                           {1, 1, 1, 10},
                                                           {5, 5, 5, 5, 5},
                                                           {1, 2, 3, 4, 5, 6, 7, 8},
                                                           {7},
                                                           {3, 9, 1, 1, 4, 2, 8, 1, 1}};
  for (const auto& sizes : examples) {
    for (int parts = 1; parts <= 5; ++parts) {
      const std::vector<int> runs = contiguous_min_max(sizes, parts);
      const auto sums = sums_of(sizes, runs, parts);
      INFO(sizes.size() << " sizes in " << parts << " parts");
      CHECK(std::is_sorted(runs.begin(), runs.end()));
      CHECK(*std::max_element(sums.begin(), sums.end()) == best_by_search(sizes, 0, parts));
      if (static_cast<int>(sizes.size()) >= parts) {
        CHECK(*std::min_element(sums.begin(), sums.end()) > 0);
      }
    }
  }
}

TEST_CASE("a partition prints as a table with its balance") {
  const Partition partition(Layout::rows, 2, one_bucket({parameter("x", {3, 2})}));
  CHECK(to_string(partition) ==
        "rows over 2 ranks: elements owned by rank\n"
        "parameter                                     0          1\n"
        "x                                             4          2\n"
        "all                                           4          2\n"
        "largest / mean: 1.333\n");
}

}  // namespace tessera
