// Partition: which rank owns which elements of which parameter.
//
// A partition is computed from shapes alone, so it is as easily made for 1024 ranks as for 2.
// Strategies, the optimizer, the planner and checkpoints all use it.
//
// A gathered bucket lies in one buffer. A layout says where in that buffer each parameter lies and
// how the buffer is cut into one part per shard. These are the layouts of three parameters on two
// shards ('|' ends shard 0's part, '.' is padding):
//
//   whole     AAAAAAAAAA BBBBB CCC             every rank owns everything          single, ddp
//   tensors   AAAAAAAAAA|BBBBB CCC             whole tensors, contiguous           zero3
//   rows      AAAAA|AAAAA BBBB|B CCC           slices of dimension 0 of each       fsdp, hsdp
//   flat      AAAAAAAAA|A BBBBB CCC            slices of the bucket as one vector  zero1, zero2,
//                                                                                  fsdp flattened
// Here A is a matrix, and B and C are vectors: biases and the weights of norms. Under `rows` a
// matrix is cut into slices of ceil(rows / shards) rows. Only the last shards' slices are short or
// empty, and all padding is at the end. So the whole matrix is a prefix of its padded segment, and
// gathering needs no copies. (The rule is torch.chunk's, as in PyTorch's FSDP2; `flat` is its
// FSDP1.) The vectors are cut as one segment, as under `flat`: a few elements per rank and vector
// would not be worth a message each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/plan/bucket.h"
#include "sharding/plan/held_part.h"
#include "sharding/plan/placement.h"

namespace tessera {

/// Elements [first, first + count).
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t end() const { return first + count; }
  bool operator==(const Range&) const = default;
};

/// A stretch of a bucket's buffer that is sent as one tensor.
struct Segment {
  Range range;
  /// The shard that owns all of it; -1 if it is cut into equal parts, one per shard.
  int owner = -1;
};

/// One bucket's buffer. The trained parameters come first. Only they have gradients, so gradients
/// lie in a buffer of the same layout that ends earlier.
struct BucketLayout {
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<Shape> shapes;          // of the parameters' held parts
  std::vector<std::int64_t> offsets;  // where each parameter begins
  std::vector<Segment> segments;
  /// Size of the buffer, padding included.
  std::int64_t elements = 0;
  /// Elements, segments and number of the trained parameters, which come first.
  std::int64_t trainable_elements = 0;
  int trainable_segments = 0;
  int trained_count = 0;
  /// See Bucket.
  std::vector<int> units;
  bool at_both_ends = false;
  bool has_table = false;

  int parameter_count() const { return static_cast<int>(parameters.size()); }
  /// Elements of a parameter that lie in the buffer.
  std::int64_t numel(int parameter) const { return shapes[parameter].numel(); }
  /// Where `part` of a parameter lies in the buffer.
  Range place_of(int parameter, const Range& part) const {
    return {offsets[parameter] + part.first, part.count};
  }
  Range place_of(int parameter) const { return place_of(parameter, {0, numel(parameter)}); }
};

class Partition {
 public:
  /// Parameters begin at multiples of so many elements: aligned for vector loads in any dtype.
  static constexpr std::int64_t kAlignment = 16;

  /// Where expert or tensor ranks share parameters out, this is the partition of one rank's parts.
  Partition(Layout layout, int shards, const std::vector<Bucket>& buckets,
            const CutSizes& cut = {});

  Layout layout() const { return layout_; }
  int shards() const { return shards_; }
  const std::vector<BucketLayout>& buckets() const { return buckets_; }

  /// Parameters of all buckets.
  int parameter_count() const { return first_.back(); }
  /// The number of a parameter among all parameters, counted bucket by bucket.
  int index_of(int bucket, int parameter) const { return first_[bucket] + parameter; }

  /// The flat elements of a parameter's held part that `shard` owns; see BucketLayout::place_of. May be
  /// empty.
  Range owned(int bucket, int parameter, int shard) const;
  /// Elements that `shard` owns in all, without padding; optionally of trained parameters only.
  std::int64_t owned_elements(int shard, bool trainable_only = false) const;

 private:
  Layout layout_;
  int shards_;
  std::vector<BucketLayout> buckets_;
  /// For each bucket the number of its first parameter; then the number of all parameters.
  std::vector<int> first_ = {0};
  std::vector<std::int64_t> owned_, owned_trained_;  // by shard
};

/// The elements of the buffer that are `shard`'s equal part of a segment. Raises Error if the
/// segment has one owner.
Range part_of(const Segment& segment, int shards, int shard);

/// A table with a line per parameter and a column per shard (of many, the first and last few).
/// It ends with the imbalance of the shards.
std::string to_string(const Partition& partition);

/// Cuts a sequence of sizes into `parts` contiguous runs. The largest sum of a run is as small as
/// possible, exactly. Returns the run of each element. Trailing runs are empty if there are fewer
/// elements than parts.
std::vector<int> contiguous_min_max(const std::vector<std::int64_t>& sizes, int parts);

}  // namespace tessera
