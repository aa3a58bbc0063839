#include "sharding/plan/footprint.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sharding/plan/partition.h"
#include "sharding/plan/schedule.h"
#include "sharding/share.h"

namespace tessera {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

std::int64_t size(DType dtype) {
  return static_cast<std::int64_t>(size_of(dtype));
}

// Elements that one rank of `ranks` sends.

/// all_gather and reduce_scatter: a part to, or for, every other rank.
std::int64_t sent_by_slices(std::int64_t elements, int ranks) {
  return elements / ranks * (ranks - 1);
}

/// The other ranks' shares to them, then the own sum to all.
std::int64_t sent_by_all_reduce(std::int64_t elements, int ranks, int rank) {
  const std::int64_t own = share_of(elements, rank, ranks).count();
  return elements - own + own * (ranks - 1);
}

std::int64_t sent_by_broadcast(std::int64_t elements, int ranks, int rank, int root) {
  return rank == root ? elements * (ranks - 1) : 0;
}

/// The other ranks' shares to them, then the own sum to the root.
std::int64_t sent_by_reduce(std::int64_t elements, int ranks, int rank, int root) {
  return elements - (rank == root ? share_of(elements, rank, ranks).count() : 0);
}

class Calculation {
 public:
  Calculation(const Units& units, const ShardingOptions& options, int world_size, int rank)
      : options_(options),
        recipe_(recipe_of(options, world_size)),
        partition_(recipe_.layout, recipe_.mesh.shards, make_buckets(units, options.buckets)),
        schedule_(partition_.buckets()),
        world_size_(world_size),
        rank_(rank),
        shard_(recipe_.mesh.shard_of(rank)) {
    for (const BucketLayout& bucket : partition_.buckets()) {
      elements_.push_back(bucket.elements);
      trained_.push_back(bucket.trainable_elements);
    }
  }

  Footprint result(std::int64_t optimizer_bytes) const {
    Footprint footprint;
    footprint.optimizer = optimizer_bytes * partition_.owned_elements(shard_, true);
    add_parameters(footprint);
    add_gradients(footprint);
    if (options_.offload != Offload::none) offload(footprint);
    add_traffic(footprint);
    return footprint;
  }

 private:
  void add_parameters(Footprint& footprint) const {
    const std::int64_t masters = 4 * partition_.owned_elements(shard_);
    const std::int64_t computed = size(options_.compute_dtype);
    if (recipe_.whole_parameters) {
      footprint.parameters = computed * sum(elements_);
      if (has_masters()) footprint.parameters += masters;
      return;
    }
    footprint.parameters = masters;
    footprint.communication += computed * sum(gather_slots().sizes(elements_));
    if (grouped()) footprint.communication += computed * kept_elements();
  }

  void add_gradients(Footprint& footprint) const {
    const bool sums_first = several() && !reduces_every();
    const bool own_buffers = recipe_.whole_gradients || sums_first;
    const bool in_place = recipe_.whole_gradients && (sums_first || !several());
    if (own_buffers) footprint.gradients += 4 * sum(trained_);
    if (!own_buffers) {
      const Slots slots = Slots::assign(partition_.buckets(), 2);
      footprint.communication += 4 * sum(slots.sizes(trained_));
    }
    if (!in_place) footprint.gradients += 4 * partition_.owned_elements(shard_, true);
    if (options_.reduce_dtype != DType::f32) {
      footprint.communication +=
          size(options_.reduce_dtype) * *std::max_element(trained_.begin(), trained_.end());
    }
  }

  /// Masters, gradients and optimizer state of what this rank owns move to the host, and with 16
  /// bits there is a rounded copy of the masters beside them. On the device stay whole parameters
  /// and the sums of gradients (offload `optimizer`), or nothing (`all`).
  void offload(Footprint& footprint) const {
    const bool all = options_.offload == Offload::all;
    const std::int64_t owned = partition_.owned_elements(shard_);
    const std::int64_t trained = partition_.owned_elements(shard_, true);
    const std::int64_t computed = size(options_.compute_dtype);
    footprint.host.parameters = 4 * owned;
    if (options_.compute_dtype != DType::f32) footprint.host.parameters += computed * owned;
    footprint.host.gradients = 4 * trained;
    std::swap(footprint.host.optimizer, footprint.optimizer);

    if (has_masters()) footprint.parameters -= 4 * owned;
    if (!recipe_.whole_parameters && !all) footprint.parameters += computed * owned;
    if (!all) return;
    footprint.gradients -= 4 * trained;
    if (several() && reduces_every()) footprint.communication += 4 * most_owned_of_a_parameter();
  }

  /// Do masters lie beside what is computed with?
  bool has_masters() const {
    return !recipe_.whole_parameters || options_.compute_dtype != DType::f32;
  }

  std::int64_t most_owned_of_a_parameter() const {
    std::int64_t most = 0;
    for (std::size_t b = 0; b < partition_.buckets().size(); ++b) {
      const auto& parameters = partition_.buckets()[b].parameters;
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        if (!parameters[p].trainable()) continue;
        const Range owned = partition_.owned(static_cast<int>(b), static_cast<int>(p), shard_);
        most = std::max(most, owned.count);
      }
    }
    return most;
  }

  void add_traffic(Footprint& footprint) const {
    if (options_.strategy == StrategyKind::single) return;
    const GatherCounts gathers = gather_counts();
    const int reductions = reduces_every() ? options_.micro_batches : 1;
    for (std::size_t b = 0; b < partition_.buckets().size(); ++b) {
      const BucketLayout& bucket = partition_.buckets()[b];
      const std::int64_t computed = size(options_.compute_dtype);
      footprint.bytes_sent += computed * gathers.forward[b] * gathered(bucket);
      footprint.bytes_sent += computed * gathers.backward[b] *
                              (grouped() ? gathered_in_group(bucket) : gathered(bucket));
      footprint.bytes_sent += size(options_.reduce_dtype) * reductions * reduced(bucket);
    }
    // The norm: one f32 and two i64, among the ranks whose shards are disjoint. The loss: one f32.
    if (recipe_.layout != Layout::whole) {
      const int shards = recipe_.mesh.shards;
      footprint.bytes_sent += 4 * sent_by_all_reduce(1, shards, shard_);
      footprint.bytes_sent += 8 * sent_by_all_reduce(2, shards, shard_);
    }
    footprint.bytes_sent += 4 * sent_by_all_reduce(1, world_size_, rank_);
  }

  GatherCounts gather_counts() const {
    if (!recipe_.whole_parameters) {
      return gathers_per_step(schedule_, gather_slots(), options_.micro_batches);
    }
    const std::vector<int> none(elements_.size(), 0);
    const std::vector<int> once(elements_.size(), recipe_.layout == Layout::whole ? 0 : 1);
    return {once, none};
  }

  std::int64_t gathered(const BucketLayout& bucket) const {
    std::int64_t elements = 0;
    for (const Segment& segment : bucket.segments) {
      const std::int64_t count = segment.range.count;
      elements += segment.owner >= 0
                      ? sent_by_broadcast(count, recipe_.mesh.shards, shard_, segment.owner)
                      : sent_by_slices(count, recipe_.mesh.shards);
    }
    return elements;
  }

  std::int64_t gathered_in_group(const BucketLayout& bucket) const {
    std::int64_t elements = 0;
    for (const Segment& segment : bucket.segments) {
      elements += sent_by_slices(segment.range.count, options_.reshard_group);
    }
    return elements;
  }

  std::int64_t reduced(const BucketLayout& bucket) const {
    const Mesh& mesh = recipe_.mesh;
    std::int64_t elements = 0;
    for (int i = 0; i < bucket.trainable_segments; ++i) {
      const Segment& segment = bucket.segments[i];
      const std::int64_t count = segment.range.count;
      if (recipe_.layout == Layout::whole) {
        elements += sent_by_all_reduce(count, world_size_, rank_);
      } else if (segment.owner >= 0) {
        elements += sent_by_reduce(count, mesh.shards, shard_, segment.owner);
      } else {
        elements += sent_by_slices(count, mesh.shards);
        elements += sent_by_all_reduce(count / mesh.shards, mesh.replicas, mesh.replica_of(rank_));
      }
    }
    return elements;
  }

  /// What a rank keeps of every bucket among its group.
  std::int64_t kept_elements() const {
    std::int64_t elements = 0;
    for (const BucketLayout& bucket : partition_.buckets()) {
      for (const Segment& segment : bucket.segments) {
        elements += segment.range.count / options_.reshard_group;
      }
    }
    return elements;
  }

  Slots gather_slots() const {
    return Slots::assign(partition_.buckets(),
                         options_.reshard_group == 1 ? 0 : options_.live_gathers);
  }
  bool grouped() const {
    return options_.reshard_group > 1 && options_.reshard_group < recipe_.mesh.shards;
  }
  bool several() const { return options_.micro_batches > 1; }
  bool reduces_every() const {
    return options_.reduce_every_micro_batch && options_.strategy != StrategyKind::single;
  }

  const ShardingOptions& options_;
  const Recipe recipe_;
  const Partition partition_;
  const Schedule schedule_;
  const int world_size_;
  const int rank_;
  const int shard_;
  std::vector<std::int64_t> elements_;
  std::vector<std::int64_t> trained_;
};

}  // namespace

Footprint footprint_of(const Units& units, const ShardingOptions& options, int world_size, int rank,
                       std::int64_t optimizer_bytes) {
  return Calculation(units, options, world_size, rank).result(optimizer_bytes);
}

}  // namespace tessera
