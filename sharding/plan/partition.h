// Partition: which rank owns which elements of which parameter.
//
// The pure heart of the sharding layer: computed from shapes alone, shared by strategies, the
// optimizer, the planner and checkpoints, and as easily made for 1024 ranks as for 2.
//
// While a bucket of parameters is whole, it lies in one buffer. A layout says where in that buffer
// each parameter lies and how the buffer is cut into one piece per rank. Three parameters on two
// ranks ('|' ends rank 0's part, '.' is padding):
//
//   whole     AAAAAAAAAA BBBBB CCC             every rank owns everything          single, ddp
//   tensors   AAAAAAAAAA|BBBBB CCC             whole tensors, contiguous           zero3
//   rows      AAAAA|AAAAA BBB|BB. CC|C.        slices of dimension 0 of each       fsdp, hsdp
//   flat      AAAAAAAAA|A BBBBB CCC            slices of the bucket as one vector  zero1, zero2,
//                                                                                  fsdp flattened
// Slices of dimension 0 have ceil(rows / ranks) rows, so only the last ranks' are short or empty
// and all padding is at the end: the whole parameter is a prefix of its padded buffer, and
// gathering needs no copies. (The rule is torch.chunk's, as in PyTorch's FSDP2; `flat` is its
// FSDP1.)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/plan/bucket.h"

namespace tessera {

enum class Layout { whole, tensors, rows, flat };

std::string_view name_of(Layout layout);

/// Elements [first, first + count).
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t end() const { return first + count; }
  bool operator==(const Range&) const = default;
};

/// A stretch of a bucket's buffer that travels as one tensor.
struct Segment {
  Range range;
  /// The shard that owns all of it; -1: it is cut into equal parts, one per shard.
  int owner = -1;
};

/// One bucket's buffer. What is to be trained comes first, so that gradients, which only exist for
/// that, lie in a buffer of the same layout that just ends earlier.
struct BucketLayout {
  std::string name;
  std::vector<Parameter> parameters;
  /// Where each parameter begins.
  std::vector<std::int64_t> offsets;
  std::vector<Segment> segments;
  /// Size of the buffer, padding included.
  std::int64_t elements = 0;
  /// The same for what is trained: the first so many elements and segments.
  std::int64_t trainable_elements = 0;
  int trainable_segments = 0;
  bool at_both_ends = false;
};

class Partition {
 public:
  /// Parameters begin at multiples of so many elements: aligned for vector loads in any dtype.
  static constexpr std::int64_t kAlignment = 16;

  Partition(Layout layout, int shards, const std::vector<Bucket>& buckets);

  Layout layout() const { return layout_; }
  int shards() const { return shards_; }
  const std::vector<BucketLayout>& buckets() const { return buckets_; }

  /// What `shard` owns of a parameter, as flat elements of it. Its place in the bucket's buffer is
  /// offsets[parameter] + first. May be empty.
  Range owned(int bucket, int parameter, int shard) const;
  /// Elements that `shard` owns in all, without padding; of parameters to be trained, if asked.
  std::int64_t owned_elements(int shard, bool trainable_only = false) const;

 private:
  Layout layout_;
  int shards_;
  std::vector<BucketLayout> buckets_;
};

/// The part of a segment that belongs to `shard`. Raises Error for a segment with one owner.
Range part_of(const Segment& segment, int shards, int shard);

/// A table: a line per parameter, a column per shard (the first and last few of many), and how even
/// the shards are.
std::string to_string(const Partition& partition);

/// Cuts a sequence of sizes into `parts` contiguous runs whose largest sum is as small as possible,
/// exactly. Returns the run of each element. Trailing runs are empty if there are fewer elements
/// than parts.
std::vector<int> contiguous_min_max(const std::vector<std::int64_t>& sizes, int parts);

}  // namespace tessera
