// Training by several configurations in turns, to compare their needs and prove that they agree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/comm/communicator.h"
#include "sharding/plan/footprint.h"
#include "tools/bench/compared.h"

namespace tessera {

struct ComparisonOptions {
  /// Their devices and communication are those of `world`. A row with fewer ranks runs on the first
  /// ones.
  std::vector<Compared> rows;
  int steps = 5;
  /// The number of times that each row trains from the start.
  int rounds = 1;
};

/// One row's figures. Bytes are those of the rank with the most.
struct RowFigures {
  std::string name;
  /// variant_name() (tools/config/sharding_options.h).
  std::string strategy;
  /// Parameters of the model.
  std::int64_t parameters = 0;
  /// Loss and gradient norm of the last step.
  float loss = 0.0f;
  double gradient_norm = 0.0;
  /// FNV-1a of all parameters after the last step, in the order of their names.
  std::uint64_t weights_checksum = 0;
  /// 0 if sums over ranks are formed in the tree of all ranks (kernels/tree_reduce/op.h). For hsdp
  /// with several replicas of a size that is not a power of two: that size.
  int summed_apart = 0;
  Footprint predicted;
  /// Peaks of the allocator, and bytes sent in a step without rows on their way to experts.
  Footprint measured;
  /// Bytes sent in the last step for rows on their way to experts and back. The routers decide on
  /// them, so they have no prediction.
  std::int64_t expert_bytes_sent = 0;
  /// Parameters, gradients, optimizer and communication slots of the rank with the largest sum.
  std::int64_t total = 0;
  std::int64_t activations = 0;
  /// Medians over the steps of all rounds without the first step of each round.
  double step_ms = 0.0;
  double communication_ms = 0.0;
  double exposed_communication_ms = 0.0;
  double tokens_per_second = 0.0;
  /// The time of each step over that of the first row's step right before it: the median, the
  /// least and the most.
  double step_ratio = 1.0;
  double least_step_ratio = 1.0;
  double most_step_ratio = 1.0;
};

/// Whether loss, gradient norm and weights have the same bits.
bool same_bits(const RowFigures& a, const RowFigures& b);

/// Whether the bits are the same or, with sums in different trees, losses and norms are within 1e-6
/// of each other.
bool agree(const RowFigures& a, const RowFigures& b);

/// The peaks of a rank's memory, and the bytes that it has sent in a step.
Footprint measured_footprint(const MemoryAccount& account, std::int64_t bytes_sent);
/// Raises Error with the first figure that differs. The message begins with `where`.
void check_footprint(const Footprint& predicted, const Footprint& measured, std::string_view where);

/// Trains `options.steps` steps by each row, `options.rounds` times, on random tokens. Every row
/// runs in turns with the first one, step by step, so that a machine that is slow for a while slows
/// both; the memory must hold two at a time. Each row has its own ranks, threads and kernels. Rank 0
/// of `world` gets the figures, the others an empty list. Raises Error if, on any rank and in any
/// step, a measured figure differs from its prediction, or if ranks or rounds end with different
/// weights.
std::vector<RowFigures> compare_rows(const ComparisonOptions& options, Communicator& world);

}  // namespace tessera
