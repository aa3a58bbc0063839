#include "sharding/plan/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/check.h"
#include "runtime/integer.h"

namespace tessera {
namespace {

/// Elements per row.
std::int64_t row_elements(const Shape& shape) {
  std::int64_t elements = 1;
  for (int dim = 1; dim < shape.rank(); ++dim) elements *= shape[dim];
  return elements;
}

/// Elements of a slice of dimension 0: ceil(rows / shards) rows.
std::int64_t slice_elements(const Shape& shape, int shards) {
  return ceil_div(shape[0], shards) * row_elements(shape);
}

/// Whether a parameter is a segment of its own. The others of a bucket are one segment together.
bool is_segment(const Parameter& parameter, Layout layout) {
  return layout == Layout::tensors || (layout == Layout::rows && parameter.shape().rank() > 1);
}

/// Appends the bucket's parameters [first, last) to its buffer: segments of one parameter, then the
/// segment of all others. `owners[i]` is the owner of parameter i, for Layout::tensors.
void append(BucketLayout& bucket, std::size_t first, std::size_t last, Layout layout, int shards,
            const int* owners) {
  bucket.offsets.resize(last);
  std::vector<std::size_t> joined;
  for (std::size_t i = first; i < last; ++i) {
    const Parameter& parameter = bucket.parameters[i];
    if (!is_segment(parameter, layout)) {
      joined.push_back(i);
      continue;
    }
    const bool cut = layout == Layout::rows;
    const std::int64_t begin = bucket.elements;
    const std::int64_t elements =
        cut ? shards * slice_elements(bucket.shapes[i], shards) : bucket.numel(static_cast<int>(i));
    bucket.offsets[i] = begin;
    bucket.segments.push_back({{begin, elements}, cut ? -1 : owners[i]});
    bucket.elements = round_up(begin + elements, Partition::kAlignment);
  }
  const std::int64_t begin = bucket.elements;
  for (const std::size_t i : joined) {
    bucket.offsets[i] = bucket.elements;
    bucket.elements =
        round_up(bucket.elements + bucket.numel(static_cast<int>(i)), Partition::kAlignment);
  }
  const std::int64_t elements = round_up(bucket.elements - begin, shards * Partition::kAlignment);
  if (elements > 0) bucket.segments.push_back({{begin, elements}});
  bucket.elements = begin + elements;
}

BucketLayout lay_out(const Bucket& bucket, Layout layout, int shards, const int* owners,
                     const CutSizes& sizes) {
  BucketLayout result{.name = bucket.name,
                      .parameters = bucket.parameters,
                      .units = bucket.units,
                      .at_both_ends = bucket.at_both_ends,
                      .has_table = bucket.has_table};
  for (const Parameter& parameter : bucket.parameters) {
    result.shapes.push_back(held_shape(parameter, sizes));
  }
  const auto trained = static_cast<std::size_t>(
      std::count_if(bucket.parameters.begin(), bucket.parameters.end(),
                    [](const Parameter& parameter) { return parameter.trainable(); }));
  append(result, 0, trained, layout, shards, owners);
  result.trained_count = static_cast<int>(trained);
  result.trainable_elements = result.elements;
  result.trainable_segments = static_cast<int>(result.segments.size());
  append(result, trained, bucket.parameters.size(), layout, shards, owners);
  return result;
}

/// For Layout::tensors: the owner of every parameter of every bucket, in order.
std::vector<int> balanced_owners(const std::vector<Bucket>& buckets, int shards,
                                 const CutSizes& cut) {
  std::vector<std::int64_t> sizes;
  for (const Bucket& bucket : buckets) {
    for (const Parameter& parameter : bucket.parameters) {
      sizes.push_back(held_shape(parameter, cut).numel());
    }
  }
  return contiguous_min_max(sizes, shards);
}

Range intersection(const Range& a, const Range& b) {
  const std::int64_t first = std::max(a.first, b.first);
  return {first, std::max<std::int64_t>(0, std::min(a.end(), b.end()) - first)};
}

const Segment& segment_at(const BucketLayout& bucket, std::int64_t element) {
  const auto after = std::upper_bound(
      bucket.segments.begin(), bucket.segments.end(), element,
      [](std::int64_t e, const Segment& segment) { return e < segment.range.first; });
  return *std::prev(after);
}

}  // namespace

Partition::Partition(Layout layout, int shards, const std::vector<Bucket>& buckets,
                     const CutSizes& cut)
    : layout_(layout), shards_(shards) {
  check(shards >= 1, "a partition has {} shards; expected at least 1", shards);
  std::vector<int> owners;
  if (layout == Layout::tensors) owners = balanced_owners(buckets, shards, cut);
  const int* next_owner = owners.data();
  for (const Bucket& bucket : buckets) {
    buckets_.push_back(lay_out(bucket, layout, shards, next_owner, cut));
    if (layout == Layout::tensors) next_owner += bucket.parameters.size();
    first_.push_back(first_.back() + buckets_.back().parameter_count());
  }
  owned_.resize(shards);
  owned_trained_.resize(shards);
  for (int b = 0; b < static_cast<int>(buckets_.size()); ++b) {
    for (int p = 0; p < buckets_[b].parameter_count(); ++p) {
      const bool trained = p < buckets_[b].trained_count;
      for (int shard = 0; shard < shards; ++shard) {
        const std::int64_t count = owned(b, p, shard).count;
        owned_[shard] += count;
        if (trained) owned_trained_[shard] += count;
      }
    }
  }
}

Range Partition::owned(int bucket, int parameter, int shard) const {
  const BucketLayout& layout = buckets_[bucket];
  const std::int64_t offset = layout.offsets[parameter];
  const std::int64_t count = layout.numel(parameter);
  if (layout_ == Layout::whole || count == 0) return {0, count};
  const Segment& segment = segment_at(layout, offset);
  if (segment.owner >= 0) return {0, segment.owner == shard ? count : 0};
  const Range mine = intersection({offset, count}, part_of(segment, shards_, shard));
  return {mine.count == 0 ? 0 : mine.first - offset, mine.count};
}

std::int64_t Partition::owned_elements(int shard, bool trainable_only) const {
  return (trainable_only ? owned_trained_ : owned_)[shard];
}

Range part_of(const Segment& segment, int shards, int shard) {
  check(segment.owner < 0, "a segment with one owner has no equal parts");
  const std::int64_t part = segment.range.count / shards;
  return {segment.range.first + part * shard, part};
}

std::string to_string(const Partition& partition) {
  constexpr int kShown = 8;
  const int shards = partition.shards();
  std::vector<int> shown(static_cast<std::size_t>(std::min(shards, kShown)));
  std::iota(shown.begin(), shown.end(), 0);
  if (shards > kShown) {
    for (int i = kShown / 2; i < kShown; ++i) shown[i] = shards - kShown + i;
  }
  std::string text = fmt::format("{} over {} ranks: elements owned by rank\n{:<36}",
                                 name_of(partition.layout()), shards, "parameter");
  for (const int shard : shown) text += fmt::format(" {:>10}", shard);
  text += '\n';
  for (std::size_t b = 0; b < partition.buckets().size(); ++b) {
    const auto& parameters = partition.buckets()[b].parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      text += fmt::format("{:<36}", parameters[p].name());
      for (const int shard : shown) {
        const Range range = partition.owned(static_cast<int>(b), static_cast<int>(p), shard);
        text += fmt::format(" {:>10}", range.count);
      }
      text += '\n';
    }
  }
  std::int64_t largest = 0;
  std::int64_t sum = 0;
  for (int shard = 0; shard < shards; ++shard) {
    const std::int64_t owned = partition.owned_elements(shard);
    largest = std::max(largest, owned);
    sum += owned;
  }
  text += fmt::format("{:<36}", "all");
  for (const int shard : shown) text += fmt::format(" {:>10}", partition.owned_elements(shard));
  const double mean = static_cast<double>(sum) / shards;
  return text + fmt::format("\nlargest / mean: {:.3f}\n", mean > 0 ? largest / mean : 1.0);
}

std::vector<int> contiguous_min_max(const std::vector<std::int64_t>& sizes, int parts) {
  // The number of runs if no run exceeds `limit` and each takes as many elements as fit.
  const auto runs_needed = [&](std::int64_t limit) {
    int runs = 1;
    std::int64_t sum = 0;
    for (const std::int64_t size : sizes) {
      if (sum + size > limit) {
        ++runs;
        sum = 0;
      }
      sum += size;
    }
    return runs;
  };
  std::int64_t low = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  std::int64_t high = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (runs_needed(middle) <= parts) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }

  std::vector<int> run_of;
  std::int64_t sum = 0;
  int run = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto left = static_cast<int>(sizes.size() - i);
    // A run also ends early where every later run would otherwise not get an element.
    if (i > 0 && run + 1 < parts && (sum + sizes[i] > low || left < parts - run)) {
      ++run;
      sum = 0;
    }
    sum += sizes[i];
    run_of.push_back(run);
  }
  return run_of;
}

}  // namespace tessera
