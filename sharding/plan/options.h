// What a training run says about sharding, and what each strategy makes of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/dtype.h"
#include "runtime/enum_names.h"
#include "sharding/plan/mesh.h"
#include "sharding/plan/partition.h"

namespace tessera {

enum class StrategyKind { single, ddp, zero1, zero2, zero3, fsdp, hsdp };

template <>
inline constexpr EnumNames<StrategyKind> kEnumNames<StrategyKind> = {
    "strategy", {"single", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"}};

inline std::string_view name_of(StrategyKind kind) {
  return enum_name(kind);
}
/// Raises Error that lists the names.
inline StrategyKind strategy_from_name(std::string_view name) {
  return enum_from_name<StrategyKind>(name);
}

/// What lies in host memory beside a GPU; see sharding/strategy/offload.h.
enum class Offload { none, optimizer, all };

template <>
inline constexpr EnumNames<Offload> kEnumNames<Offload> = {"offload", {"none", "optimizer", "all"}};

struct ShardingOptions {
  StrategyKind strategy = StrategyKind::single;
  /// fsdp and hsdp: slices of each bucket as one vector (FSDP1), not of every tensor (FSDP2).
  bool flatten_parameters = false;
  /// hsdp: ranks that share one replica. 0: half of all ranks, or less: a power of two, so that
  /// sums have the bits of ddp's.
  int shard_size = 0;
  /// See make_buckets.
  std::string buckets = "unit";
  /// zero3, fsdp, hsdp: over how many ranks a bucket stays spread between forward and backward.
  /// 0: over all that share it; 1: it stays whole; k, a divisor: in groups of k ranks (not zero3).
  int reshard_group = 0;
  /// zero3, fsdp, hsdp: how many inner buckets may be whole at a time; 1 means no prefetching.
  int live_gathers = 2;
  bool prefetch_in_forward = true;
  bool prefetch_in_backward = true;
  /// Forward and backward passes per optimizer step.
  int micro_batches = 1;
  /// With several micro-batches: reduce after each (true), or keep whole gradients on every rank
  /// and reduce their sum at the end (false): less traffic, more memory, other rounding.
  bool reduce_every_micro_batch = true;
  /// What parameters are gathered and computed with: f32, bf16 or f16. Masters are f32.
  DType compute_dtype = DType::f32;
  /// What gradients are reduced in. (Sums over ranks are formed in f32 in any case.)
  DType reduce_dtype = DType::f32;
  /// `all` is for zero3, fsdp and hsdp.
  Offload offload = Offload::none;
};

/// A strategy as a point in the space of strategies.
struct Recipe {
  Mesh mesh;
  Layout layout = Layout::whole;
  /// Every rank holds all parameters at all times; otherwise only while a bucket is in use.
  bool whole_parameters = true;
  /// Every rank holds all gradients; otherwise only until a bucket is reduced.
  bool whole_gradients = true;
};

/// Raises Error if the options contradict each other or do not suit so many ranks.
Recipe recipe_of(const ShardingOptions& options, int world_size);

}  // namespace tessera
